//! An object that lends copies of an array.

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::python::class::array_class::{dlpack, dlpack_device};
use crate::python::class::exported_array::ExportedArray;

/// An array of which each consumer gets a copy, on its own stream: for a library that would write to read-only memory.
#[pyclass(frozen, module = "interop_core")]
pub(crate) struct CopiedArray(pub(crate) Py<ExportedArray>);

#[pymethods]
impl CopiedArray {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let always = PyBool::new(py, true).to_owned().into_any();
        let copy = copy.filter(|copy| !copy.is_none()).unwrap_or(&always);
        dlpack(self.0.bind(py), [stream, max_version, dl_device, Some(copy)])
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        dlpack_device(py, self.0.get())
    }
}
