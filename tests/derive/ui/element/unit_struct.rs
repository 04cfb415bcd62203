use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Nothing;

fn main() {}
