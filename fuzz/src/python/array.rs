//! Arrays of our own, as a Python class.
#![expect(unsafe_code, reason = "memory says that it is of a kind that it is not")]

use interop_core::{CudaArray, Device, DeviceType, HostVec, MemoryRegion, SharedBuffer, Storage};
use pyo3::prelude::*;

/// The kinds of memory; those of CUDA are imagined, and there is no driver that knows better.
pub(super) const KINDS: [i32; 4] = [1, 2, 3, 13];

/// An array of 3 × 4 numbers.
#[pyclass(frozen, module = "world")]
#[derive(CudaArray)]
#[cuda_array(shape = [3, 4], export, pyclass)]
pub(super) struct Array {
    #[cuda_array(data)]
    data: SharedBuffer,
}

struct Imagined {
    numbers: HostVec<f32>,
    device: Device,
}

// SAFETY: as the vector inside, which the host reaches; nobody brings a GPU that would look for the memory on it.
unsafe impl Storage for Imagined {
    fn memory(&self) -> MemoryRegion {
        MemoryRegion { device: self.device, ..self.numbers.memory() }
    }
}

impl Array {
    /// An array in memory of this kind.
    pub(super) fn new(kind: i32, readonly: bool) -> Self {
        let device = Device { device_type: DeviceType(kind), device_id: 0 };
        let data = SharedBuffer::new(Imagined { numbers: HostVec::zeroed(12), device });
        Self { data: if readonly { data.read_only() } else { data } }
    }
}
