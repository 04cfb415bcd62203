use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Pair {
    side: f32,
    side: f32,
}

fn main() {}
