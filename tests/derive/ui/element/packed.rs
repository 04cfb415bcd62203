use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C, packed)]
struct Point {
    tag: u8,
    x: f32,
}

fn main() {}
