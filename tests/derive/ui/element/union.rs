use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
union Bits {
    float: f32,
    bits: u32,
}

fn main() {}
