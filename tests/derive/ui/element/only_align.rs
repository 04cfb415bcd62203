use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(align(16))]
struct Point {
    x: f32,
    y: f32,
}

fn main() {}
