use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], readonli)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
    title: String,
}

fn main() {}
