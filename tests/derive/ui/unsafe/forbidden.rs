#![forbid(unsafe_code)]

use interop_core::storage::Owner;
use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
#[cuda_array(export)]
struct Pointer {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: Device,
}

#[derive(CudaArray)]
struct Address {
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
