use interop_core::{CudaArray, Device};

#[derive(CudaArray)]
#[cuda_array(export)]
struct Image {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: Device,
}

// A struct with a raw pointer is not `Send` by itself: who knows that it may be, says so.
fn main() {
    let image = Image { pixels: std::ptr::null_mut(), shape: [0, 2], device: Device::CPU };
    let _ = image.into_dlpack();
}
