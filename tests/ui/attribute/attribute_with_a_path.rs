use interop_core::CudaArray;

#[derive(CudaArray)]
#[interop_core::cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
