//! An import from a capsule.

use pyo3::prelude::*;

use crate::cuda::verify::Verification;
use crate::memory::import::Import;
use crate::python::capsule::{take, take_from};
use crate::python::errors::{Failure, of};
use crate::python::import::protocol::{ImportedArray, Protocol};
use crate::python::import::receive::ImportSlot;
use crate::python::py_owner::release_deferred_refs;
use crate::python::shared_borrows::share_borrow_table;

/// Imports the tensor in a capsule that an older interface handed out, which is consumed.
///
/// The capsule carries no stream: the caller has ordered the work on it.
///
/// # Errors
///
/// `TypeError` for an object that is no capsule; `ArrayError` for a capsule of another name, such as one that was
/// consumed, and for an array that cannot be used.
///
/// ```no_run
/// use interop_core::python::import_capsule;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn nbytes(capsule: &Bound<'_, PyAny>) -> PyResult<usize> {
///     Ok(import_capsule(capsule)?.import.info().nbytes())
/// }
/// ```
pub fn import_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<ImportedArray> {
    release_deferred_refs(capsule.py());
    share_borrow_table(capsule.py())?;
    let mut import = Import::EMPTY;
    let mut to = ImportSlot { import: &mut import, trust: Verification::Full };
    let received = take(capsule).and_then(|taken| to.receive_taken(taken));
    let protocol = received.map_err(|error| of(capsule, error))?;
    Ok(ImportedArray { import, protocol })
}

/// The tensor in a capsule that `object` handed out.
pub(crate) fn from_capsule(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    capsule: Bound<'_, PyAny>,
) -> core::result::Result<Protocol, Failure> {
    let taken = take_from(object, capsule)?;
    Ok(to.receive_taken(taken).map_err(|error| of(object, error))?)
}
