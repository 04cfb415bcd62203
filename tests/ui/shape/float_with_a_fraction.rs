use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, 2.5])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
