use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr = "C"]
struct Pair {
    left: f32,
    right: f32,
}

fn main() {}
