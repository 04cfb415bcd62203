//! `__jax_array__`, by which `jax.numpy` converts objects.

use pyo3::prelude::*;

use crate::python::class::exported_array::ExportedArray;
use crate::python::export::library::ResultLibrary;
use crate::python::import::package::Package;

#[pymethods]
impl ExportedArray {
    /// The array as a `jax.Array`: in place if it is writable, otherwise a copy. `jax.numpy.asarray(x)` asks for it first.
    fn __jax_array__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        ResultLibrary::from_package(slf.py(), Package::Jax)?.convert(slf.py(), slf.clone().unbind())
    }
}
