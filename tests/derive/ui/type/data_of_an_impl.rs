use interop_core::{CudaArray, Element};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<impl Element>,
    len: usize,
}

fn main() {}
