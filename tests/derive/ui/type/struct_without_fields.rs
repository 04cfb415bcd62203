use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(readonly)]
struct Image {}

fn main() {}
