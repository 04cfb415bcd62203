use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[unsafe(cuda_array(data(unsafe_raw)))]
    values: *mut f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
}

fn main() {}
