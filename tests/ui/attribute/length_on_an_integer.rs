use interop_core::CudaArray;

#[derive(CudaArray)]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(len)]
    len: usize,
}

fn main() {}
