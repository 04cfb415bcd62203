//! The description of a storage's memory.

use core::ops::Range;

use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::mutability::Mutability;

/// The memory of a [`Storage`](crate::Storage).
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    /// The address of element \[0, …, 0\].
    pub address: usize,
    /// The address range that belongs to the storage.
    pub range: Range<usize>,
    /// The element type.
    pub element: ElementType,
    /// The device of the memory.
    pub device: Device,
    /// Who may write.
    pub mutability: Mutability,
}

impl MemoryRegion {
    /// Describes `len` elements `T` that start at `address`.
    #[must_use]
    pub fn new<T: Element>(address: usize, len: usize, device: Device, mutability: Mutability) -> Self {
        // Existing memory does not wrap around; a wrong length is rejected when the shape is compared with the range.
        let end = address.saturating_add(len.saturating_mul(size_of::<T>()));
        Self { address, range: address..end, element: T::TYPE, device, mutability }
    }
}
