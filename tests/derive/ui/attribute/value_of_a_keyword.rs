use interop_core::{CudaArray, HostVec};

#[derive(CudaArray)]
#[cuda_array(readonly = true)]
struct ValueOnAPlainWord {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct ValueOnAnOption {
    #[cuda_array(data(unsafe_raw = true))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
struct ValueOnData {
    #[cuda_array(data = "f32")]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct ValueOnOwner {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(owner = None)]
    parent: Option<String>,
}

#[derive(CudaArray)]
struct ValueOnStrides {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides = "bytes")]
    strides: [isize; 2],
}

#[derive(CudaArray)]
struct OptionsOnAPlainWord {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(stream(handle))]
    stream: interop_core::StreamHandle,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct OptionForAValue {
    #[cuda_array(data = unsafe_raw)]
    values: *const f32,
    len: usize,
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], readonly = false)]
struct WordThatIsFalse {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], import_only)]
struct DirectionWithOnly {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

fn main() {}
