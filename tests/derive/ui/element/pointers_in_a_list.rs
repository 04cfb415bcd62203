use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Row {
    columns: [*mut u8; 2],
}

fn main() {}
