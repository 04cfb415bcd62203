use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(export)]
struct Image {
    #[cuda_array(data(unsafe_raw))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

fn main() {}
