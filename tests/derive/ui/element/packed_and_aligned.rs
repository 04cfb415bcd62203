use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C, packed, align(8))]
struct Point {
    x: f32,
    y: f32,
}

fn main() {}
