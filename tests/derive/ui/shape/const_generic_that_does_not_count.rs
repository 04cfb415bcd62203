use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, COLOR])]
struct Image<const COLOR: bool> {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
}

fn main() {}
