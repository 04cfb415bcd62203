use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: &[f32],
    len: usize,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Exported {
    #[cuda_array(data)]
    values: &'a [f32],
    len: usize,
}

fn main() {}
