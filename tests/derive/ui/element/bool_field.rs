use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Flagged {
    x: f32,
    valid: bool,
}

fn main() {}
