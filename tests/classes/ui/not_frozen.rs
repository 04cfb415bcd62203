use interop_core::{CudaArray, HostVec};
use pyo3::prelude::*;

#[pyclass]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

fn main() {}
