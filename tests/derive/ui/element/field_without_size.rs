use interop_core::Element;

#[derive(Element)]
#[repr(C)]
struct Name {
    len: u8,
    text: [u8],
}

fn main() {}
