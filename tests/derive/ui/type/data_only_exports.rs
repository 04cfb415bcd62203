use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image {
    #[cuda_array(data)]
    pixels: &'static [f32],
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
