use interop_core::CudaArray;

// Neither sees the other, and rustc says it of each of the two traits.
#[derive(CudaArray, CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
