use interop_core::storage::Owner;
use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
#[cuda_array(dtype = "f4")]
struct Dtype {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DtypeAsAnOption {
    #[cuda_array(data(unsafe_raw, dtype = f32))]
    values: u64,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct ElementInQuotes {
    #[cuda_array(data(unsafe_raw, element = "f32"))]
    values: u64,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct ElementIsNoType {
    #[cuda_array(data(unsafe_raw, element = 4))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], element = f32)]
struct ElementOnTheStruct {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct ElementWithoutType {
    #[cuda_array(data(unsafe_raw, element))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct TypeAsAWord {
    #[cuda_array(data, type = f32)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct TypeAsAnOptionOfAPointer {
    #[cuda_array(data(type = f32))]
    pixels: *mut f32,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct TypeWithoutItsOption {
    #[cuda_array(data(unsafe_raw, f32))]
    address: u64,
    len: usize,
    #[cuda_array(device)]
    device: Device,
}

fn main() {}
