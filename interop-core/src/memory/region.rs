//! What a storage says of its memory.

use core::ops::Range;

use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::mutability::Mutability;

/// The memory behind a [`Storage`](crate::Storage).
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    /// The address of element \[0, …, 0\].
    pub address: usize,
    /// The addresses that belong to the storage.
    pub range: Range<usize>,
    /// The type of the elements.
    pub element: ElementType,
    /// Where the memory is.
    pub device: Device,
    /// Who may write.
    pub mutability: Mutability,
}

impl MemoryRegion {
    /// `len` elements `T` from `address` on.
    #[must_use]
    pub fn new<T: Element>(address: usize, len: usize, device: Device, mutability: Mutability) -> Self {
        // Memory that exists does not wrap around; a false length is refused when the range is compared.
        let end = address.saturating_add(len.saturating_mul(size_of::<T>()));
        Self { address, range: address..end, element: T::TYPE, device, mutability }
    }
}
