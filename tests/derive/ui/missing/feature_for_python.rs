use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(python)]
struct Argument {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(pyclass)]
struct Class {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
