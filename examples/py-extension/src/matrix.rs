//! The least that a function can do with an array: what `benches/python` measures an import with.

use interop_core::python::interface_of;
use interop_core::{CudaArray, Lease};
use pyo3::prelude::*;

/// A matrix in memory of the caller's.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], python)]
pub(crate) struct Matrix<S> {
    #[cuda_array(data)]
    elements: S,
    rows: usize,
    columns: usize,
}

/// Whether a matrix of `float32` has as many rows as columns.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the lease ends when the call does")]
pub(crate) fn is_square(obj: Matrix<Lease<f32>>) -> PyResult<bool> {
    let [rows, columns] = obj.view::<f32, 2>()?.shape();
    Ok(rows == columns)
}

/// The bytes that the elements of a `__cuda_array_interface__` take; validates the interface, without a driver.
#[pyfunction]
pub(crate) fn interface_nbytes(obj: &Bound<'_, PyAny>) -> PyResult<usize> {
    let interface = obj.getattr(pyo3::intern!(obj.py(), "__cuda_array_interface__"))?;
    Ok(interface_of(&interface)?.facts()?.nbytes())
}
