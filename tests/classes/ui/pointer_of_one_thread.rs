use interop_core::{CudaArray, Device, storage::Owner};

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Samples {
    // SAFETY: the owner keeps the memory.
    #[cuda_array(data(unsafe_raw))]
    values: *mut f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

fn main() {}
