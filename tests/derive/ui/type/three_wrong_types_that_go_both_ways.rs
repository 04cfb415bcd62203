use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: u8,
    #[cuda_array(owner)]
    owner: u8,
}

fn main() {}
