use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    len: usize,
    #[cuda_array(data)]
    values: [f32],
}

fn main() {}
