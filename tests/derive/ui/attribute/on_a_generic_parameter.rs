use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image<#[cuda_array(data)] S> {
    #[cuda_array(data)]
    pixels: S,
    #[cuda_array(shape)]
    shape: [usize; 2],
}

fn main() {}
