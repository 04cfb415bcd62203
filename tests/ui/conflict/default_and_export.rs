use interop_core::{CudaArray, StreamHandle};

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(stream, default = StreamHandle::NothingPending)]
    stream: StreamHandle,
    #[cuda_array(default)]
    title: String,
}

fn main() {}
