use interop_core::CudaArray;

struct InContext<B>(B);

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data(unsafe_raw))]
    values: InContext<Vec<f32>>,
    len: usize,
}

fn main() {}
