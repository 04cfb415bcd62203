use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data(element = f32))]
    address: u64,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

fn main() {}
