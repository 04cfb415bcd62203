use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point<'a> {
    x: &'a f32,
}

fn main() {}
