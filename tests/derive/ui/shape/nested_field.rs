use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [self.size.height, width])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(default)]
    size: (),
    width: usize,
}

fn main() {}
