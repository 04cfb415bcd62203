use interop_core::Element;

#[derive(Clone, Copy, Element, Element)]
#[repr(C)]
struct Point {
    x: f32,
    y: f32,
}

fn main() {}
