use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(export)]
struct AddressIsTooSmall {
    #[cuda_array(data(unsafe_raw, element = f32))]
    pixels: u32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DataIsASharedStr {
    #[cuda_array(data)]
    bytes: std::sync::Arc<str>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DataIsASliceBeforeOtherFields {
    #[cuda_array(data)]
    values: [f32],
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DataIsBorrowed<'a> {
    #[cuda_array(data)]
    values: &'a [f32],
    len: usize,
}

#[derive(CudaArray)]
struct DataIsNoStorage {
    #[cuda_array(data)]
    pixels: std::collections::HashMap<String, f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(import)]
struct DataIsNoStorageOfAnImport {
    #[cuda_array(data)]
    pixels: std::collections::HashMap<String, f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct DataOfNoElement {
    #[cuda_array(data)]
    pixels: Vec<String>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct DataOfSlices {
    #[cuda_array(data)]
    pixels: Vec<[f32]>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
struct DataOnlyExports {
    #[cuda_array(data)]
    pixels: &'static [f32],
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct DeviceIsNoDevice {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: u32,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct ElementOfAnAddressIsNone {
    #[cuda_array(data(unsafe_raw, element = String))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
struct ElementOfAnAddressThatGoesBothWays {
    #[cuda_array(data(unsafe_raw, element = Vec<f32>))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
    #[cuda_array(owner)]
    owner: interop_core::storage::Owner,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct ExtentIsNoInteger {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: f32,
    width: usize,
}

#[derive(CudaArray)]
struct OwnerOfAPointerIsNoOwner {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
    #[cuda_array(owner)]
    owner: std::sync::Arc<str>,
}

type Pixels = Vec<f32>;

#[derive(CudaArray)]
#[cuda_array(export)]
struct PointerIsAStorage {
    #[cuda_array(data(unsafe_raw))]
    pixels: Pixels,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct PointerToNoElement {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut String,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
struct ShapeIsNoList {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: usize,
}

#[derive(CudaArray)]
struct ShapeOfFloats {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: Vec<f32>,
}

#[derive(CudaArray)]
struct StreamIsNoStream {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(stream)]
    stream: String,
}

#[derive(CudaArray)]
struct StridesAreNoList {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides)]
    strides: isize,
}

fn main() {}
