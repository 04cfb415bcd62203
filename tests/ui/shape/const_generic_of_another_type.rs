use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, CHANNELS])]
struct Image<const CHANNELS: u32> {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
