use interop_core::CudaArray;

type Pixels = Vec<f32>;

#[derive(CudaArray)]
#[cuda_array(export)]
struct Image {
    #[cuda_array(data(unsafe_raw))]
    pixels: Pixels,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(device)]
    device: interop_core::Device,
}

fn main() {}
