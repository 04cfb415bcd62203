//! PyO3 converts a class by itself, so the conversions of `python` would be there twice.
use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len], python, pyclass)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
