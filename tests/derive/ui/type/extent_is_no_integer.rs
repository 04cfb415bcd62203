use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: f32,
    width: usize,
}

fn main() {}
