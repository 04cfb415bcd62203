use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape = [height, width])]
    height: usize,
    width: usize,
}

fn main() {}
