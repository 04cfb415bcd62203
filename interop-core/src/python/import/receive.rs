//! Takes over a foreign tensor, whose deleter may run Python code.
#![expect(unsafe_code, reason = "releases foreign structs")]

use core::ptr::NonNull;

use crate::cuda::verify::Verification;
use crate::error::{Refused, Result};
use crate::memory::import::Import;
use crate::protocols::dlpack::abi::TensorAbi;
use crate::protocols::dlpack::managed_tensor::{ManagedTensor, release};
use crate::python::capsule::CapsuleTensor;
use crate::python::exception_state::with_saved_exception;
use crate::python::unstable_api::is_attached;

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
