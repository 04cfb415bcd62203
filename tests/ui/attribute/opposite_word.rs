use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(shape = [len], no_import)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

fn main() {}
