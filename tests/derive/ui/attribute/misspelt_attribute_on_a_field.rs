use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_arrray(data)]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
