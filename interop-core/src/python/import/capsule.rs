//! Imports a DLPack capsule.

use pyo3::prelude::*;

use crate::cuda::verify::Verification;
use crate::memory::import::Import;
use crate::python::capsule::take;
use crate::python::errors::of;
use crate::python::import::receive::receive_capsule;
use crate::python::py_owner::release_deferred_refs;
use crate::python::shared_borrows::share_borrow_table;

/// Imports the tensor of a capsule, for interfaces that pass capsules instead of arrays. Consumes the capsule.
///
/// A capsule contains no stream: the caller has made its work wait for the producer's.
///
/// # Errors
///
/// - `TypeError` for an object that is not a capsule.
/// - `ArrayError` for a capsule of another name, such as one that was consumed, and for an array that cannot be used.
///
/// ```no_run
/// use interop_core::python::import_capsule;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn nbytes(capsule: &Bound<'_, PyAny>) -> PyResult<usize> {
///     Ok(import_capsule(capsule)?.info().nbytes())
/// }
/// ```
pub fn import_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Import> {
    release_deferred_refs(capsule.py());
    share_borrow_table(capsule.py())?;
    let mut import = Import::EMPTY;
    let received = take(capsule).and_then(|tensor| receive_capsule(&mut import, tensor, Verification::Full));
    received.map_err(|error| of(capsule, error))?;
    Ok(import)
}
