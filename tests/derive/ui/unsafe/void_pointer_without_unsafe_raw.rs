use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: *const std::ffi::c_void,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
