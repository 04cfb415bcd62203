use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
struct DefaultTwice {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(default, default = String::new())]
    name: String,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct DefaultTwiceOnAnExtent {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(default, default)]
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(device = "cuda", device = "cpu")]
struct DeviceTwice {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], device = ["cpu", "cuda_host", "cpu"])]
struct DeviceInAList {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(order = "C")]
#[cuda_array(order = "F")]
struct OrderTwice {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct OptionTwice {
    #[cuda_array(data(unsafe_raw, unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct OptionsInTwoWords {
    #[cuda_array(data(unsafe_raw), data(element = f32))]
    address: u64,
    len: usize,
    #[cuda_array(device)]
    device: Device,
}

#[derive(CudaArray)]
#[cuda_array(readonly, readonly)]
struct StructWordTwice {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct WordTwice {
    #[cuda_array(data, data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct WordThreeTimes {
    #[cuda_array(data, data, data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 1],
}

#[derive(CudaArray)]
struct WordInTwoAttributes {
    #[cuda_array(data)]
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], shape = [width, height])]
struct ExtentsTwice {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height], shape = [width])]
struct OtherExtents {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

fn main() {}
