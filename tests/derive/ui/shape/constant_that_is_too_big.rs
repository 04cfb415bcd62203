use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, u64::MAX], export)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
