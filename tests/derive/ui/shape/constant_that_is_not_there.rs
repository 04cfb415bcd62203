use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [HEIGHT, width])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    width: usize,
}

fn main() {}
