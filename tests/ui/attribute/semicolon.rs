use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(readonly; shape = [height, width], order = "C")]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: usize,
    width: usize,
}

fn main() {}
