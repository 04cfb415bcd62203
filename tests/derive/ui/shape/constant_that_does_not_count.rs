use interop_core::CudaArray;

const HEIGHT: f32 = 480.0;

#[derive(CudaArray)]
#[cuda_array(shape = [HEIGHT, width])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    width: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [height, COLOR])]
struct Generic<const COLOR: bool> {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
