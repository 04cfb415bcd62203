use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[repr(packed(2))]
struct Point {
    tag: u8,
    x: f32,
}

fn main() {}
