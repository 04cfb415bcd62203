use interop_core::CudaArray;

struct LockedBuffer<T>(Vec<T>);

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data(unsafe_raw))]
    values: LockedBuffer<f32>,
    len: usize,
}

fn main() {}
