use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
    #[cuda_array(default = let title = String::new())]
    title: String,
}

fn main() {}
