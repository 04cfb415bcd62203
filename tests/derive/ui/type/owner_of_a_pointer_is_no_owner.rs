use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
    #[cuda_array(owner)]
    owner: std::sync::Arc<str>,
}

fn main() {}
