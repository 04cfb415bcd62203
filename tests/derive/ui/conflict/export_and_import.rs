use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(export, import)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
