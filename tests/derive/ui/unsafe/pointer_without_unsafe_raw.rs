use interop_core::CudaArray;

#[derive(CudaArray)]
struct Pointer {
    #[cuda_array(data)]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct NotNull {
    #[cuda_array(data)]
    pixels: std::ptr::NonNull<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct Untyped {
    #[cuda_array(data)]
    pixels: *const std::ffi::c_void,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

#[derive(CudaArray)]
struct Address {
    #[cuda_array(data)]
    address: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

#[derive(CudaArray)]
struct AddressOfElements {
    #[cuda_array(data(element = f32))]
    address: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

fn main() {}
