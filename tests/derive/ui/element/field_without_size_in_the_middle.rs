use interop_core::Element;

#[derive(Element)]
#[repr(C)]
struct Name {
    text: str,
    len: u8,
}

fn main() {}
