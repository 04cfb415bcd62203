use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point {
    x: f32,
    rest: [[f32; 0]; 2],
}

fn main() {}
