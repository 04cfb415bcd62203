use interop_core::CudaArray;

const CHANNELS: i32 = 3 - 4;

#[derive(CudaArray)]
#[cuda_array(shape = [height, width, CHANNELS])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

fn main() {}
