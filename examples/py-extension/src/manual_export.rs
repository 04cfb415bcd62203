//! A class that implements the protocol's methods by hand: the array is only a part of the object.

use std::sync::Arc;

use interop_core::python::{DlpackArgs, dlpack_device, export, import_as};
use interop_core::{CudaArray, HostVec};
use pyo3::prelude::*;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Samples {
    #[cuda_array(data)]
    values: HostVec<f32>,
    len: usize,
}

/// A recording: samples, and the number of samples per second.
#[pyclass(frozen, module = "interop_demo")]
pub(crate) struct Recording {
    samples: Arc<Samples>,
    #[pyo3(get)]
    rate: u32,
}

#[pymethods]
impl Recording {
    /// Copies the samples, which may be any one-dimensional array of `float32`.
    #[new]
    fn new(samples: &Bound<'_, PyAny>, rate: u32) -> PyResult<Self> {
        Ok(Self { samples: Arc::new(import_as(samples)?), rate })
    }

    /// Returns one sample. Python iterates over objects with such a method.
    fn __getitem__(&self, index: usize) -> PyResult<f32> {
        Ok(self.samples.view::<f32, 1>()?.host_view()?.read([index])?)
    }

    /// Returns a `DLPack` capsule of the samples.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let request = DlpackArgs::try_from([stream, max_version, dl_device, copy])?;
        export(py, &self.samples, &request)
    }

    /// Returns the device type and the ordinal.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        dlpack_device(py, &*self.samples)
    }
}
