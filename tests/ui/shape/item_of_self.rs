use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [self[1]])]
struct Samples(#[cuda_array(data)] Vec<f32>, usize);

fn main() {}
