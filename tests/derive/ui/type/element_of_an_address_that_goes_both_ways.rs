use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data(unsafe_raw, element = Vec<f32>))]
    pixels: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
    #[cuda_array(owner)]
    owner: interop_core::storage::Owner,
}

fn main() {}
