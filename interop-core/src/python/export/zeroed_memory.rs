//! New memory for arrays whose element type and device are known at run time only.

use std::sync::Arc;

use crate::array::device::{Device, DeviceType};
use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::cuda::allocation::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::derive::fields::axes::ShapeField;
use crate::error::Result;
use crate::memory::host_buffer::HostBuffer;
use crate::memory::info_builder::InfoBuilder;
use crate::memory::storage::Storage;

/// Zeroed memory of this crate.
pub(crate) type ZeroedMemory = Arc<dyn Storage + Send + Sync>;

/// Allocates zeroed memory on any device, and describes it as an array in C order. CUDA memory is ready on the legacy
/// default stream.
///
/// # Errors
///
/// As [`CudaBuffer::zeroed`] and [`HostBuffer::zeroed`].
pub(crate) fn zeroed_memory(
    (shape, dtype, device): (&[usize], DType, Device),
) -> Result<(ArrayInfo, ZeroedMemory)> {
    fn described<S: Storage + Send + Sync + 'static>(
        shape: &[usize],
        storage: S,
    ) -> Result<(ArrayInfo, ZeroedMemory)> {
        let memory = Arc::new(storage);
        Ok((shape.to_vec().finish(InfoBuilder::storage(&*memory))?, memory))
    }
    let count = Layout::contiguous(shape, Order::C)?.numel();
    let kind = match device.device_type {
        DeviceType::CPU => return described(shape, HostBuffer::zeroed(dtype, count)?),
        DeviceType::CUDA_HOST => MemoryKind::Pinned,
        DeviceType::CUDA_MANAGED => MemoryKind::Managed,
        _ => MemoryKind::Device,
    };
    described(shape, CudaBuffer::zeroed(kind, device.device_id, dtype, count)?)
}
