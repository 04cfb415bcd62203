use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(data)]
struct Image {
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
