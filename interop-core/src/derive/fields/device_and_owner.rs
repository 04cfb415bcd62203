//! Field types for the device and the owner of raw memory.

use crate::derive::fields::raw_pointer::RawMemory;
use crate::driver::device::Device;
use crate::driver::stream_handle::PendingWork;
use crate::memory::extraction::Extraction;
use crate::memory::owner::Owner;
use crate::memory::storage::{InfoBuilder, MemoryState};

/// The type of a `device` field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `device` of a `CudaArray`",
    label = "not a device",
    note = "write `interop_core::Device`, which holds the memory type and the ordinal"
)]
pub trait DeviceField: Sized {
    /// Called by expanded code for exports.
    #[doc(hidden)]
    fn describe(&self, memory: RawMemory) -> InfoBuilder<'static>;

    /// Called by expanded code for imports.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>) -> Self;
}

impl DeviceField for Device {
    fn describe(&self, memory: RawMemory) -> InfoBuilder<'static> {
        InfoBuilder::new(memory.on(*self), None, false, MemoryState::new(PendingWork::UNKNOWN))
    }

    fn take(from: &mut Extraction<'_>) -> Self {
        from.device()
    }
}

/// The type of an `owner` field next to a raw pointer. An import fills it with the owner of the memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot own the memory of an import",
    label = "an import cannot fill this field",
    note = "write `interop_core::storage::Owner`; or write `#[cuda_array(export)]` on the struct"
)]
pub trait FromOwner: Sized {
    /// Converts an owner.
    fn from_owner(owner: Owner) -> Self;

    /// Called by expanded code for imports.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>) -> Option<Self> {
        from.owner().map(Self::from_owner)
    }
}

impl FromOwner for Owner {
    fn from_owner(owner: Owner) -> Self {
        owner
    }
}

impl FromOwner for Option<Owner> {
    fn from_owner(owner: Owner) -> Self {
        Some(owner)
    }
}
