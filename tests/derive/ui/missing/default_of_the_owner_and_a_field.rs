use std::sync::Arc;

use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    title: String,
    #[cuda_array(owner)]
    session: Arc<String>,
}

fn main() {}
