use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data(unsafe_raw))]
    values: Vec<f32>,
    len: usize,
}

fn main() {}
