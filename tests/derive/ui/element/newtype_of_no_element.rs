use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct Label(char);

fn main() {}
