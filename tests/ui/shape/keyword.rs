use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(shape = [type])]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    r#type: usize,
}

fn main() {}
