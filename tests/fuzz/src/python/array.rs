//! A Python class of the crate's own arrays.
#![expect(unsafe_code, reason = "memory says that it is of a kind that it is not")]

use interop_core::storage::MemoryRegion;
use interop_core::{CudaArray, Device, DeviceType, HostVec, SharedBuffer, Storage};
use pyo3::prelude::*;

/// The device types. Memory with a CUDA type is simulated, and there is no driver that could detect it.
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

// SAFETY: the memory is that of the vector inside, which the host can access. No GPU uses it.
unsafe impl Storage for Imagined {
    fn memory(&self) -> interop_core::Result<MemoryRegion> {
        Ok(MemoryRegion { device: self.device, ..self.numbers.memory()? })
    }
}

impl Array {
    /// Creates an array in memory of this device type.
    pub(super) fn new(kind: i32, readonly: bool) -> Self {
        let device = Device { device_type: DeviceType(kind), device_id: 0 };
        let data = SharedBuffer::new(Imagined { numbers: HostVec::zeroed(12), device });
        Self { data: if readonly { data.read_only() } else { data } }
    }
}
