//! Memory behind raw pointers: the one place where a derived struct takes the user's word for it.
#![expect(unsafe_code, reason = "the constructors take the user's promise")]

use crate::descriptor::Writes;
use crate::device::Device;
use crate::element::{Element, ElementType};
use crate::roles::{RawAddress, RawPointer};
use crate::storage::Memory;

/// What a `data(unsafe_raw)` field says.
#[derive(Clone, Copy, Debug)]
pub struct RawMemory {
    address: usize,
    element: ElementType,
    writes: Writes,
}

impl RawMemory {
    /// The memory behind a pointer.
    ///
    /// # Safety
    ///
    /// As long as the struct lives, the pointer leads to live, initialized memory on the device that the struct's
    /// `device` field names, for every element that shape and strides reach and what lies between; and to memory that may be
    /// written, unless the pointer is a `*const` or the struct `readonly`. Only `&mut self` frees or replaces it.
    pub unsafe fn new<P: RawPointer>(pointer: &P) -> Self {
        Self { address: pointer.address(), element: P::Element::TYPE, writes: P::WRITES }
    }

    /// The memory at an address; null where the address does not fit, which an array with elements refuses.
    ///
    /// # Safety
    ///
    /// As [`new`](Self::new), for elements `T`.
    pub unsafe fn at_address<T: Element, A: RawAddress>(address: &A) -> Self {
        let address = address.address().unwrap_or(0);
        Self { address, element: T::TYPE, writes: A::WRITES }
    }

    /// The memory on this device, of unknown extent.
    pub(crate) fn on(self, device: Device) -> Memory {
        let Self { address, element, writes } = self;
        Memory { address, range: address..address, element, device, writes }
    }
}
