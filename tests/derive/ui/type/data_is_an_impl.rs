use interop_core::{CudaArray, Element, Storage};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: impl Storage,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Elements {
    #[cuda_array(data)]
    values: Vec<impl Element>,
    len: usize,
}

fn main() {
    let _ = |samples: &Elements| samples.info();
}
