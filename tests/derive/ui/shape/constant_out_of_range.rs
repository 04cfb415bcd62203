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

#[derive(CudaArray)]
#[cuda_array(shape = [height, Self::WIDTH])]
struct OfAType {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

impl OfAType {
    const WIDTH: isize = -1;
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, u64::MAX], export)]
struct TooBig {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
