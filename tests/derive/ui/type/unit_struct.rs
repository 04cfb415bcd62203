use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image;

fn main() {}
