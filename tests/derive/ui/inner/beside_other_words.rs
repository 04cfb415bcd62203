//! The inner struct has its own memory, shape and stream.

use interop_core::{CudaArray, HostVec, StreamHandle};

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct Image {
    #[cuda_array(data)]
    pixels: HostVec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], order = "F")]
struct Shaped {
    #[cuda_array(inner)]
    image: Image,
    #[cuda_array(default)]
    len: usize,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Two {
    #[cuda_array(inner)]
    image: Image,
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
