use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Flags {
    count: u8,
    flags: [bool; 3],
}

fn main() {}
