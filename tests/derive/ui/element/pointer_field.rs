use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Node {
    value: f32,
    next: *const Node,
}

fn main() {}
