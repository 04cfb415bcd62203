//! Takes over a foreign tensor, whose deleter may run Python code.
#![expect(unsafe_code, reason = "releases foreign structs")]

use core::ptr::NonNull;

use pyo3::prelude::*;

use crate::cuda::verify::Verification;
use crate::error::{Refused, Result};
use crate::memory::import::Import;
use crate::protocols::dlpack::abi::TensorAbi;
use crate::protocols::dlpack::managed_tensor::{ManagedTensor, release};
use crate::python::capsule::{CapsuleTensor, take};
use crate::python::errors::of;
use crate::python::interpreter::{is_attached, with_saved_exception};
use crate::python::py_owner::release_deferred_refs;
use crate::python::shared_borrows::share_borrow_table;

/// Imports a tensor from Python into an empty import. Releases the tensor on an error.
pub(crate) fn receive<A: TensorAbi>(
    to: &mut Import,
    tensor: ManagedTensor<A>,
    verification: Verification,
) -> Result<()> {
    // SAFETY: `release_foreign::<A>` releases a struct of the form `A`, on any thread.
    let received = unsafe { to.receive(tensor, release_foreign::<A>, verification) };
    received.map_err(|Refused { value, error }| {
        // SAFETY: the error returned a struct of the form `A`, and nobody else releases it.
        unsafe { release_foreign::<A>(value.into_non_null()) };
        error
    })
}

/// As [`receive`], for the tensor of a capsule.
pub(crate) fn receive_capsule(
    to: &mut Import,
    tensor: CapsuleTensor,
    verification: Verification,
) -> Result<()> {
    match tensor {
        CapsuleTensor::Versioned(tensor) => receive(to, tensor, verification),
        CapsuleTensor::Legacy(tensor) => receive(to, tensor, verification),
    }
}

/// Releases a foreign tensor. Its deleter can be Python code, so a pending exception is saved and restored.
///
/// # Safety
///
/// As [`release`].
pub(crate) unsafe fn release_foreign<A: TensorAbi>(tensor: NonNull<()>) {
    // SAFETY: as the caller promises.
    let release = || unsafe { release::<A>(tensor) };
    if is_attached() {
        // SAFETY: the thread is attached.
        unsafe { with_saved_exception(release) };
    } else {
        release();
    }
}

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
