//! The least that a function can do with an array: what `benches/python` and `tests/gpu` measure an import with.
#![expect(unsafe_code, reason = "one function believes what it is told of memory")]

use interop_core::python::{extract_interface, import_as_unchecked};
use interop_core::{CudaArray, Lease};
use pyo3::prelude::*;

/// A matrix in memory of the caller's.
#[derive(CudaArray)]
#[cuda_array(shape = [rows, columns], python)]
pub(crate) struct Matrix<S> {
    #[cuda_array(data)]
    pub(crate) elements: S,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Whether a matrix of `float32` has as many rows as columns.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the lease ends when the call does")]
pub(crate) fn is_square(obj: Matrix<Lease<f32>>) -> PyResult<bool> {
    let [rows, columns] = obj.view::<f32, 2>()?.shape();
    Ok(rows == columns)
}

/// The sum of the diagonal of a matrix of `float32` in memory that the host reaches, which is copied for it.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the copy is this function's own")]
pub(crate) fn trace(obj: Matrix<Vec<f32>>) -> f64 {
    let diagonal = obj.elements.iter().step_by(obj.columns + 1).take(obj.rows);
    // From 0: the `sum()` of nothing is -0.
    diagonal.fold(0.0, |sum, element| sum + f64::from(*element))
}

/// As `is_square`, for objects of libraries that tell the truth: the driver is not asked about their memory.
#[pyfunction]
pub(crate) fn is_square_trusted(obj: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: whoever calls a function of this name vouches for the object; nothing is read from the memory.
    is_square(unsafe { import_as_unchecked(obj) }?)
}

/// The bytes that the elements of a `__cuda_array_interface__` take; validates the interface, without a driver.
#[pyfunction]
pub(crate) fn interface_nbytes(obj: &Bound<'_, PyAny>) -> PyResult<usize> {
    let interface = obj.getattr(pyo3::intern!(obj.py(), "__cuda_array_interface__"))?;
    Ok(extract_interface(&interface)?.info()?.nbytes())
}
