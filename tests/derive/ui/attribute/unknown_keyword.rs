use interop_core::storage::Owner;
use interop_core::{CudaArray, Device, HostVec};

#[derive(CudaArray)]
#[cuda_array(export)]
struct MisspeltOptionWithAValue {
    #[cuda_array(data(unsafe_raw, elemnt = f32))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
struct MisspeltWordOfTheOtherPlace {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(readonli)]
    name: String,
}

#[derive(CudaArray)]
struct UnknownOptionOfData {
    #[cuda_array(data(unsafe))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct UnknownOptionOfDataLikeNoOther {
    #[cuda_array(data(device))]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct UnknownOptionOfStrides {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides(byte))]
    strides: [isize; 2],
}

#[derive(CudaArray)]
struct UnknownWordForTheData {
    #[cuda_array(dta)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct UnknownWordLikeNoOther {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(banana)]
    name: String,
}

#[derive(CudaArray)]
struct UnknownWordOnField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strid)]
    strides: [isize; 2],
}

#[derive(CudaArray)]
#[cuda_array(readonyl)]
struct UnknownWordOnStruct {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct WordOfTheStructAsAnOption {
    #[cuda_array(data(device = "cpu"))]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], no_import)]
struct OppositeWord {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], writable)]
struct Writable {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
struct StridesInElements {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides(elements))]
    strides: [isize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct OptionBesideItsWord {
    #[cuda_array(data, unsafe_raw)]
    values: *const f32,
    len: usize,
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct OptionWithoutItsWord {
    #[cuda_array(unsafe_raw)]
    values: *mut f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

fn main() {}
