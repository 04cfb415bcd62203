//! Takes over a foreign tensor, whose deleter may run Python code.
#![expect(unsafe_code, reason = "releases foreign structs")]

use core::ptr::NonNull;

use crate::cuda::verify::Verification;
use crate::error::Refused;
use crate::memory::import::Import;
use crate::protocols::dlpack::abi::TensorAbi;
use crate::protocols::dlpack::managed_tensor::{ManagedTensor, release};
use crate::python::capsule::CapsuleTensor;
use crate::python::exception_state::with_saved_exception;
use crate::python::import::protocol::Protocol;
use crate::python::interpreter::is_attached;

/// Where an array from Python arrives, and how far it is believed.
pub(crate) struct ImportSlot<'a> {
    pub(crate) import: &'a mut Import,
    pub(crate) trust: Verification,
}

impl ImportSlot<'_> {
    /// An import of the tensor of a capsule, and the protocol that its form says.
    pub(crate) fn receive_taken(&mut self, taken: CapsuleTensor) -> crate::Result<Protocol> {
        match taken {
            CapsuleTensor::Versioned(tensor) => self.receive(tensor).map(|()| Protocol::DlpackVersioned),
            CapsuleTensor::Legacy(tensor) => self.receive(tensor).map(|()| Protocol::Dlpack),
        }
    }

    /// An import of a tensor that came from Python, which is released if it is refused.
    pub(crate) fn receive<A: TensorAbi>(&mut self, tensor: ManagedTensor<A>) -> crate::Result<()> {
        // SAFETY: `release_foreign::<A>` releases a struct of the form `A`, on any thread.
        let received = unsafe { self.import.receive(tensor, release_foreign::<A>, self.trust) };
        received.map_err(|Refused { value, error }| {
            // SAFETY: a struct of the form `A`, which the refusal gave back and nobody else releases.
            unsafe { release_foreign::<A>(value.into_non_null()) };
            error
        })
    }
}

/// Releases a foreign tensor. Its deleter can be Python code, which an exception that is on its way must survive.
///
/// # Safety
///
/// As [`release`].
pub(crate) unsafe fn release_foreign<A: TensorAbi>(tensor: NonNull<()>) {
    // SAFETY: as the caller promises.
    let let_go = || unsafe { release::<A>(tensor) };
    if is_attached() {
        // SAFETY: the thread is attached.
        unsafe { with_saved_exception(let_go) };
    } else {
        let_go();
    }
}
