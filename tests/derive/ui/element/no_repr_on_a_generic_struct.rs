use interop_core::{CudaArray, Element, HostVec};

#[derive(Clone, Copy, Element)]
struct Pair<T> {
    first: T,
    second: T,
}

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Pairs {
    #[cuda_array(data)]
    pairs: HostVec<Pair<f32>>,
    len: usize,
}

fn main() {}
