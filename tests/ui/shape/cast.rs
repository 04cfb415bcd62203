use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height as usize, 3])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    height: u32,
}

fn main() {}
