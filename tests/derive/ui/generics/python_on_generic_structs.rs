use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(pyclass, export)]
struct Class<'a> {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: &'a [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(pyclass)]
struct Generic<T> {
    #[cuda_array(data)]
    pixels: Vec<T>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(python, export)]
struct Argument<'a> {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: &'a [usize; 2],
}

fn main() {}
