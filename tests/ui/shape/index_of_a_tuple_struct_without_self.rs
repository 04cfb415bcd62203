use interop_core::CudaArray;

// `1` is the literal one here, so the field `1` is not an extent.
#[derive(CudaArray)]
#[cuda_array(shape = [1, 3])]
struct Image(#[cuda_array(data)] Vec<f32>, usize);

fn main() {}
