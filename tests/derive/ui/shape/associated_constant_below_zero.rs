use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, Self::WIDTH])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

impl Image {
    const WIDTH: isize = -1;
}

fn main() {}
