use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point {
    x: f32,
    label: char,
}

fn main() {}
