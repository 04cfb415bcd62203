use interop_core::CudaArray;

#[derive(CudaArray)]
struct TwoData {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(data)]
    mask: Vec<u8>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct TwoDevice {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    first: interop_core::Device,
    #[cuda_array(device)]
    second: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct TwoOwner {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(owner)]
    first: interop_core::storage::Owner,
    #[cuda_array(owner)]
    second: interop_core::storage::Owner,
}

#[derive(CudaArray)]
struct TwoShape {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    first: [usize; 2],
    #[cuda_array(shape)]
    second: [usize; 2],
}

#[derive(CudaArray)]
struct TwoStream {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(stream)]
    first: interop_core::StreamHandle,
    #[cuda_array(stream)]
    second: interop_core::StreamHandle,
}

#[derive(CudaArray)]
struct TwoStrides {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides)]
    first: [isize; 2],
    #[cuda_array(strides)]
    second: [isize; 2],
}

#[derive(CudaArray)]
struct ShapeInPlaceOfData {
    #[cuda_array(shape)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
