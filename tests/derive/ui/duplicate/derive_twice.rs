use interop_core::CudaArray;

#[derive(CudaArray)]
#[derive(Clone, interop_core::CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
