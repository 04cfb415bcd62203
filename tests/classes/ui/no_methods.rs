use interop_core::python::{ExportedView, view};
use interop_core::{CudaArray, HostVec};
use pyo3::prelude::*;

#[pyclass(frozen)]
#[derive(CudaArray)]
#[cuda_array(shape = [len], export)]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

#[pymethods]
impl Samples {
    fn __getitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<ExportedView> {
        view(slf, key)
    }
}

fn main() {}
