use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [height, 3])]
struct Image(#[cuda_array(data)] Vec<f32>, usize);

fn main() {}
