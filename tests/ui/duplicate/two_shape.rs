use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    first: [usize; 2],
    #[cuda_array(shape)]
    second: [usize; 2],
}

fn main() {}
