use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides)]
    first: [isize; 2],
    #[cuda_array(strides)]
    second: [isize; 2],
}

fn main() {}
