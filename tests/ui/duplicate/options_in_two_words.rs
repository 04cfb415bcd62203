use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[cuda_array(data(unsafe_raw), data(element = f32))]
    address: u64,
    len: usize,
    #[cuda_array(device)]
    device: Device,
}

fn main() {}
