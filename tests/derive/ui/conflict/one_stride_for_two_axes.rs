use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, width])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
    #[cuda_array(strides)]
    strides: [isize; 1],
}

fn main() {}
