use interop_core::{CudaArray, HostVec};
use pyo3::prelude::*;

#[pyclass(frozen)]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Samples<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

type Owned = Samples<HostVec<f32>>;

fn main() {}
