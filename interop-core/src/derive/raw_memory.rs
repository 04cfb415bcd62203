//! Memory behind raw pointers: the one place where a derived struct takes the user's word for it.

use crate::array::device::Device;
use crate::array::element::ElementType;
use crate::array::mutability::Mutability;
use crate::memory::region::MemoryRegion;

/// What a `data(unsafe_raw)` field says.
#[derive(Clone, Copy, Debug)]
pub struct RawMemory {
    address: usize,
    element: ElementType,
    mutability: Mutability,
}

impl RawMemory {
    /// The memory at `address`, for a raw pointer or address field: what the user promised, its `memory` method has taken.
    pub(crate) const fn new(address: usize, element: ElementType, mutability: Mutability) -> Self {
        Self { address, element, mutability }
    }

    /// The memory on this device, of unknown extent.
    pub(crate) fn on(self, device: Device) -> MemoryRegion {
        let Self { address, element, mutability } = self;
        MemoryRegion { address, range: address..address, element, device, mutability }
    }
}
