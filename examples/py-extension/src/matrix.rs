//! Minimal functions that take an array. `tests/benches/python` and `tests/gpu` use them to measure imports.
#![expect(unsafe_code, reason = "one function does not verify what an object states about its memory")]

use interop_core::arrays::Array2;
use interop_core::python::{extract_cai, import_unchecked};
use interop_core::{CudaArray, FromArray, Lease};
use pyo3::prelude::*;

/// Whether a matrix of `float32` has as many rows as columns.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the lease ends when the call does")]
pub(crate) fn is_square(obj: Array2<Lease<f32>>) -> PyResult<bool> {
    let [rows, columns] = obj.view::<f32, 2>()?.shape();
    Ok(rows == columns)
}

/// Returns the sum of the diagonal of a `float32` matrix in memory that the host can access. The matrix is copied
/// first.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the copy is this function's own")]
pub(crate) fn trace(obj: Array2<Vec<f32>>) -> f64 {
    let diagonal = obj.values.iter().step_by(obj.columns + 1).take(obj.rows);
    // Starts at 0, because the `sum()` of nothing is -0.
    diagonal.fold(0.0, |sum, element| sum + f64::from(*element))
}

/// As `is_square`, for objects of trusted libraries: their memory is not verified with the driver.
#[pyfunction]
pub(crate) fn is_square_trusted(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: the caller trusts the library of the object, and nothing is read from the memory.
    let import = unsafe { import_unchecked(obj, None) }?;
    is_square(Array2::from_import(import)?)
}

/// Validates a `__cuda_array_interface__` without a driver, and returns the size of its elements in bytes.
#[pyfunction]
pub(crate) fn interface_nbytes(obj: &Bound<'_, PyAny>) -> PyResult<usize> {
    let interface = obj.getattr(pyo3::intern!(obj.py(), "__cuda_array_interface__"))?;
    Ok(extract_cai(&interface)?.info()?.nbytes())
}
