use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(pyclass)]
struct Image<T> {
    #[cuda_array(data)]
    pixels: Vec<T>,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
