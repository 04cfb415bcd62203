use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, width], pyclass, pyclass)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

fn main() {}
