//! Memory behind raw pointers, whose extent and lifetime the user guarantees.

use crate::array::device::Device;
use crate::array::element::ElementType;
use crate::array::mutability::Mutability;
use crate::memory::storage::MemoryRegion;

/// The content of a `data(unsafe_raw)` field.
#[derive(Clone, Copy, Debug)]
pub struct RawMemory {
    address: usize,
    element: ElementType,
    mutability: Mutability,
}

impl RawMemory {
    /// Describes memory at `address`. The unsafe method `memory` of the field traits states the contract.
    pub(crate) const fn new(address: usize, element: ElementType, mutability: Mutability) -> Self {
        Self { address, element, mutability }
    }

    /// The memory on this device, of unknown extent.
    pub(crate) fn on(self, device: Device) -> MemoryRegion {
        let Self { address, element, mutability } = self;
        MemoryRegion { address, range: address..address, element, device, mutability }
    }
}
