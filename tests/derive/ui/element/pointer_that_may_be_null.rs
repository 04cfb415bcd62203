use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Node {
    next: Option<std::ptr::NonNull<u8>>,
}

fn main() {}
