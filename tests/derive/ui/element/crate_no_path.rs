use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
#[cuda_array(crate = "interop core")]
struct Point {
    x: f32,
}

fn main() {}
