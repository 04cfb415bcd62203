use interop_core::storage::Owner;
use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data(unsafe_raw))]
    values: *mut f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    owner: Owner,
}

fn main() {}
