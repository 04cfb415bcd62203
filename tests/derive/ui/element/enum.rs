use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(u8)]
enum Color {
    Red,
    Green,
}

fn main() {}
