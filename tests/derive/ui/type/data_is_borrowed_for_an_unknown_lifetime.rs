use interop_core::CudaArray;

#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[cuda_array(data)]
    values: &'a [f32],
    len: usize,
}

fn main() {}
