use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [self.sizes[0], 3])]
struct Image {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    sizes: [usize; 1],
}

fn main() {}
