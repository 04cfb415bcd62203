use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, T])]
struct Image<T> {
    #[cuda_array(data)]
    pixels: Vec<T>,
    height: usize,
}

fn main() {}
