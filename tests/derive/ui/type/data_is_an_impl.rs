use interop_core::{CudaArray, Storage};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: impl Storage,
    len: usize,
}

fn main() {
    let _ = |samples: &Samples| samples.info();
}
