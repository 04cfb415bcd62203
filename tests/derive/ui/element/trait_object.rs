use interop_core::Element;

#[derive(Element)]
#[repr(C)]
struct Point {
    x: f32,
    label: Box<dyn std::fmt::Display>,
}

fn main() {}
