use interop_core::{CudaArray, Element};

#[derive(Clone, Copy, Element)]
struct Point {
    x: f32,
    y: f32,
}

#[derive(CudaArray)]
struct Cloud {
    #[cuda_array(data)]
    points: Vec<Point>,
    #[cuda_array(shape)]
    shape: [usize; 1],
}

fn main() {}
