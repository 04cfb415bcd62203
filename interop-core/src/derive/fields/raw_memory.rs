//! Field types for raw memory: pointers, addresses in integers, the device and the owner.
#![expect(unsafe_code, reason = "declares unsafe methods that take the promise about a raw pointer")]

use core::ffi::c_void;
use core::ptr::NonNull;

use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::mutability::Mutability;
use crate::memory::extraction::{Extraction, Requirements};
use crate::memory::storage::{InfoBuilder, MemoryRegion};
use crate::order::memory_state::StorageState;
use crate::order::placement::Placement;
use crate::order::release::owner::Owner;

/// The content of a `data(unsafe_raw)` field.
#[derive(Clone, Copy, Debug)]
pub struct RawMemory {
    address: usize,
    element: ElementType,
    mutability: Mutability,
}

impl RawMemory {
    /// The memory on this device, of unknown extent.
    pub(crate) fn on(self, device: Device) -> MemoryRegion {
        let Self { address, element, mutability } = self;
        MemoryRegion { address, range: address..address, element, device, mutability }
    }
}

/// An address in a field: a pointer or an integer.
pub trait RawField: Copy {
    /// Who may write at the address.
    const MUTABILITY: Mutability = Mutability::Writable;

    /// The address, or `None` if it does not fit.
    fn address(self) -> Option<usize>;

    /// Converts an address. A `NonNull` is never null.
    fn from_address(address: usize) -> Self;

    /// Describes elements of this type. An address that does not fit becomes null, which `validate` rejects for an array
    /// with elements.
    #[doc(hidden)]
    fn describe_elements(self, element: ElementType) -> RawMemory {
        RawMemory { address: self.address().unwrap_or(0), element, mutability: Self::MUTABILITY }
    }
}

impl<T> RawField for *mut T {
    fn address(self) -> Option<usize> {
        Some(self.expose_provenance())
    }

    fn from_address(address: usize) -> Self {
        core::ptr::with_exposed_provenance_mut(address)
    }
}

impl<T> RawField for *const T {
    const MUTABILITY: Mutability = Mutability::ReadOnly;

    fn address(self) -> Option<usize> {
        Some(self.expose_provenance())
    }

    fn from_address(address: usize) -> Self {
        core::ptr::with_exposed_provenance(address)
    }
}

impl<T> RawField for NonNull<T> {
    fn address(self) -> Option<usize> {
        self.as_ptr().address()
    }

    fn from_address(address: usize) -> Self {
        Self::new(RawField::from_address(address)).unwrap_or(Self::dangling())
    }
}

impl RawField for usize {
    fn address(self) -> Option<usize> {
        Some(self)
    }

    fn from_address(address: usize) -> Self {
        address
    }
}

impl RawField for u64 {
    fn address(self) -> Option<usize> {
        usize::try_from(self).ok()
    }

    fn from_address(address: usize) -> Self {
        address as Self
    }
}

/// The type of a `data(unsafe_raw)` field: a raw pointer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a raw pointer to array elements",
    label = "`data(unsafe_raw)` requires a raw pointer",
    note = "write `*mut T`, `*const T` or `NonNull<T>` of an array element `T`",
    note = "for an integer address, such as a `CUdeviceptr`, write `#[cuda_array(data(unsafe_raw, element = T))]`"
)]
pub trait RawPointer: RawField {
    /// The element type.
    type Element: Element;

    /// Called by expanded code for exports.
    ///
    /// # Safety
    ///
    /// As long as the struct lives, the pointer points to live, initialized memory on the device that the struct's
    /// `device` field names. The memory covers all elements that shape and strides reach, and everything between them.
    /// It may be written, unless the pointer is a `*const` or the struct is `readonly`. Only methods with `&mut self`
    /// free or replace it.
    #[doc(hidden)]
    unsafe fn memory(&self) -> RawMemory {
        self.describe_elements(Self::Element::TYPE)
    }

    /// Called by expanded code for imports, before anything is taken.
    #[doc(hidden)]
    fn open(from: &mut Extraction<'_>, requirements: Requirements) {
        from.check_in_place(Self::Element::TYPE, Self::MUTABILITY, requirements);
    }

    /// Called by expanded code for imports.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>) -> Self {
        Self::from_address(from.address())
    }
}

impl<T: Element> RawPointer for *mut T {
    type Element = T;
}

impl<T: Element> RawPointer for *const T {
    type Element = T;
}

impl<T: Element> RawPointer for NonNull<T> {
    type Element = T;
}

/// The type of a `data(unsafe_raw, element = T)` field: an address in an integer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an address",
    label = "`data(unsafe_raw, element = ...)` requires an integer address",
    note = "write `u64` or `usize`; for a pointer write `#[cuda_array(data(unsafe_raw))]`"
)]
pub trait RawAddress: RawField {
    /// Called by expanded code for exports.
    ///
    /// # Safety
    ///
    /// As [`RawPointer::memory`], for elements `T` at the address.
    #[doc(hidden)]
    unsafe fn memory<T: Element>(&self) -> RawMemory {
        self.describe_elements(T::TYPE)
    }

    /// Called by expanded code for imports, before anything is taken.
    #[doc(hidden)]
    fn open<T: Element>(from: &mut Extraction<'_>, requirements: Requirements) {
        from.check_in_place(T::TYPE, Self::MUTABILITY, requirements);
    }

    /// Called by expanded code for imports.
    #[doc(hidden)]
    fn take(from: &mut Extraction<'_>) -> Self {
        Self::from_address(from.address())
    }
}

impl RawAddress for usize {}

impl RawAddress for u64 {}

impl RawAddress for *mut c_void {}

impl RawAddress for *const c_void {}

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
        InfoBuilder::new(memory.on(*self), None, false, StorageState::new(Placement::Unknown))
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
