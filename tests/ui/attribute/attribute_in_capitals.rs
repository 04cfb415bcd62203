use interop_core::CudaArray;

#[derive(CudaArray)]
#[CUDA_ARRAY(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
