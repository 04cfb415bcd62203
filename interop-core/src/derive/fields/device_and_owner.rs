//! Where raw memory is, and who keeps it.

use crate::array::device::Device;
use crate::derive::raw_memory::RawMemory;
use crate::memory::extraction::Extraction;
use crate::memory::info_builder::InfoBuilder;
use crate::memory::owner::Owner;

/// A `device` field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `device` of a `CudaArray`",
    label = "not a device",
    note = "write `interop_core::Device`, which says the kind of memory and the ordinal"
)]
pub trait DeviceField: Sized {
    /// Where the memory is.
    fn device(&self) -> Device;
    /// The field for this device.
    fn from_device(device: Device) -> Self;

    /// The derive's call on the way out.
    #[doc(hidden)]
    fn describe(&self, memory: RawMemory) -> InfoBuilder<'static> {
        InfoBuilder::raw(memory, self)
    }

    /// The derive's call on the way in.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>) -> Self {
        Self::from_device(from.device())
    }
}

impl DeviceField for Device {
    fn device(&self) -> Device {
        *self
    }

    fn from_device(device: Device) -> Self {
        device
    }
}

/// An `owner` field beside a raw pointer, which an import fills with the owner of the memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot own the memory of an import",
    label = "an import cannot fill this field",
    note = "write `interop_core::Owner`; or write `#[cuda_array(export)]` on the struct"
)]
pub trait FromOwner: Sized {
    /// The field that owns what `owner` owns.
    fn from_owner(owner: Owner) -> Self;

    /// The derive's call on the way in.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>) -> Option<Self> {
        from.owner()
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
