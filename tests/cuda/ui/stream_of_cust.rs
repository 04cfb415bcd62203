//! A `cust` stream cannot be made from the caller's handle.
use cust::memory::DeviceBuffer;
use cust::stream::Stream;
use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: DeviceBuffer<f32>,
    len: usize,
    #[cuda_array(stream)]
    stream: Stream,
}

fn main() {}
