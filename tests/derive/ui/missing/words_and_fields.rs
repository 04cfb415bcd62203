use interop_core::storage::Owner;
use std::sync::Arc;
use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
struct DataStruct {
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct DataAndShape {
    pixels: Vec<f32>,
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct DefaultOfAField {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    name: String,
}

#[derive(CudaArray)]
struct DefaultOfATupleField(#[cuda_array(data)] Vec<f32>, #[cuda_array(shape)] [usize; 2], String);

#[derive(CudaArray)]
#[cuda_array(import)]
struct DefaultOfAnImport {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    name: String,
}

#[derive(CudaArray)]
struct DefaultOfManyFields {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    name: String,
    count: u32,
    labels: Vec<String>,
}

#[derive(CudaArray)]
struct DefaultOfTheOwner {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(owner)]
    context: std::sync::Arc<str>,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DefaultOfTheOwnerAndAField {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    title: String,
    #[cuda_array(owner)]
    session: Arc<String>,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct ElementOfAVoidPointer {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut core::ffi::c_void,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct ElementOfAnAddress {
    #[cuda_array(data(unsafe_raw))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], pyclass, pyclass)]
struct FeatureForPyclassTwice {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], python = "FeatureForPythonWithAValue")]
struct FeatureForPythonWithAValue {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct WordOfTheOwner {
    #[cuda_array(data(unsafe_raw))]
    values: *mut f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    owner: Owner,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct WithoutDevice {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct WithoutOwner {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
struct WithoutShape {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
