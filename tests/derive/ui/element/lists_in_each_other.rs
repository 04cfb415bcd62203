use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Cell {
    values: [[[[[f32; 2]; 2]; 2]; 2]; 2],
}

fn main() {}
