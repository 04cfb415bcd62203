use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [n; 3])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    n: usize,
}

fn main() {}
