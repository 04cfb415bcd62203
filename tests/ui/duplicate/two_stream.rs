use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(stream)]
    first: interop_core::StreamHandle,
    #[cuda_array(stream)]
    second: interop_core::StreamHandle,
}

fn main() {}
