use interop_core::{CudaArray, Device, Owner};

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data(unsafe_raw, dtype = f32))]
    values: u64,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

fn main() {}
