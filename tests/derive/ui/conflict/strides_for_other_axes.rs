use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
    #[cuda_array(strides)]
    strides: [isize; 2],
}

fn main() {}
