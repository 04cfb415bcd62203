use interop_core::python::ArrayLike;
use interop_core::{CudaArray, Lease, LeaseMut};

#[derive(CudaArray)]
#[cuda_array(shape = [len], python)]
struct Samples<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

const _: () = ArrayLike::<Samples<Lease<f32>>>::ONLY_READ;

const _: () = ArrayLike::<Samples<LeaseMut<f32>>>::ONLY_READ;

fn main() {}
