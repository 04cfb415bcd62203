use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
