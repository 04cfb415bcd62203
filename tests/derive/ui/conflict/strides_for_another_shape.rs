use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 3],
    #[cuda_array(strides(bytes))]
    strides: Option<[isize; 2]>,
}

fn main() {}
