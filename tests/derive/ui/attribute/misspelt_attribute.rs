use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_aray(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
