use interop_core::{CudaArray, StreamHandle};

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct DefaultAndExport {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(stream, default = StreamHandle::NothingPending)]
    stream: StreamHandle,
    #[cuda_array(default)]
    title: String,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct DefaultOnAnExtent {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(default)]
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
struct DefaultOnData {
    #[cuda_array(data, default)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct DefaultOnDevice {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device, default = interop_core::Device::CPU)]
    device: interop_core::Device,
    #[cuda_array(owner)]
    owner: interop_core::storage::Owner,
}

#[derive(CudaArray)]
struct DefaultOnShape {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape, default = [2, 2])]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct DefaultOnStrides {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides, default)]
    strides: [isize; 2],
}

#[derive(CudaArray)]
struct DefaultOnTheOwnerOfAPointer {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
    #[cuda_array(owner, default = interop_core::storage::Owner::default())]
    owner: interop_core::storage::Owner,
}

fn main() {}
