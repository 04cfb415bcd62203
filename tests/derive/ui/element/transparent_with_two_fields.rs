use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct Point {
    x: f32,
    y: f32,
}

fn main() {}
