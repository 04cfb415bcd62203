use interop_core::CudaArray;

#[derive(CudaArray)]
struct Samples {
    #[cuda_array(data, data, data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 1],
}

fn main() {}
