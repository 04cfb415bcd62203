use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(export, device = "cuda")]
struct DeviceAndExport {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct DeviceBesideAStorage {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct ElementOfAPointer {
    #[cuda_array(data(unsafe_raw, element = f64))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
struct ElementOfAStorage {
    #[cuda_array(data(element = f32))]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(export, import)]
struct ExportAndImport {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct OneStrideForTwoAxes {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
    #[cuda_array(strides)]
    strides: [isize; 1],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
#[repr(C, packed(2))]
struct PackedStruct {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(pyclass, import)]
struct PyclassAndImport {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

// PyO3 converts a class by itself, so the conversions of `python` would be there twice.
#[derive(CudaArray)]
#[cuda_array(shape = [len], python, pyclass)]
struct PythonAndPyclass {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(readonly, import)]
struct ReadonlyAndImport {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, 3])]
struct ShapeOfFieldAndStruct {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    height: usize,
}

#[derive(CudaArray)]
struct StridesForAnotherShape {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 3],
    #[cuda_array(strides(bytes))]
    strides: Option<[isize; 2]>,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct StridesForOtherAxes {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(strides)]
    strides: [isize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct UnsafeRawOfAStorage {
    #[cuda_array(data(unsafe_raw))]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
