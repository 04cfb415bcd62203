use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(shape = [len], import_only)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

fn main() {}
