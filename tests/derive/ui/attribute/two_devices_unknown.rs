use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len], device = ["gpu", "cuda", "tpu"])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
