use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(default, default)]
    len: usize,
}

fn main() {}
