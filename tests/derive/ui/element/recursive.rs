use interop_core::Element;

// Without `Clone`, whose code rustc may look at, and then it says more.
#[derive(Element)]
#[repr(C)]
struct Node {
    value: f32,
    next: Option<Node>,
}

fn main() {}
