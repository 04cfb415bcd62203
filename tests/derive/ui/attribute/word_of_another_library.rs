use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(ptr)]
    pixels: Vec<f32>,
    #[cuda_array(dims)]
    shape: [usize; 2],
    #[cuda_array(skip)]
    name: String,
}

fn main() {}
