use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [size, 3])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    #[cuda_array(shape)]
    size: [usize; 2],
}

fn main() {}
