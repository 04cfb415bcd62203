use interop_core::CudaArray;

#[derive(CudaArray)]
struct Image(#[cuda_array(data)] Vec<f32>, #[cuda_array(shape)] [usize; 2], String);

fn main() {}
