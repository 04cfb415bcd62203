use interop_core::{CudaArray, HostVec};
use pyo3::prelude::*;

#[pyclass(frozen)]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export, pyclass)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

#[pymethods]
impl Samples {
    fn __dlpack__(&self) -> usize {
        self.len
    }
}

fn main() {}
