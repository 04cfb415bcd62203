use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape, default = [2, 2])]
    shape: [usize; 2],
}

fn main() {}
