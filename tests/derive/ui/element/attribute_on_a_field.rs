use interop_core::Element;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Point {
    #[cuda_array(data)]
    x: f32,
}

fn main() {}
