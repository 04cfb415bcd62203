#![forbid(unsafe_code)]

use interop_core::storage::Owner;
use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data(unsafe_raw, element = f32))]
    address: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

fn main() {}
