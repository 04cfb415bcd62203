//! The inner struct is exported only, and the outer one is imported too. An `inner` field that is not an array struct.

use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Exported {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

#[derive(CudaArray)]
struct Both {
    #[cuda_array(inner)]
    exported: Exported,
}

#[derive(CudaArray)]
struct NoArray {
    #[cuda_array(inner)]
    text: String,
}

fn main() {}
