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

#[pymodule]
fn samples(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Samples>()?;
    interop_core::python::add_class::<Samples>(module)
}

fn main() {}
