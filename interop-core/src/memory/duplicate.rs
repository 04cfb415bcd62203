//! A copy of an array in new memory of the same kind.
#![expect(unsafe_code, reason = "reads the memory of the array")]

#[cfg(feature = "python")]
use crate::array::device::DeviceType;
use crate::array::info::ArrayInfo;
#[cfg(feature = "python")]
use crate::array::layout::Layout;
#[cfg(feature = "python")]
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::cuda::allocation::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::cuda::copy::{copy_now, moved, stage};
use crate::cuda::driver::driver;
use crate::cuda::stream_wait::stream_synchronize;
use crate::error::Result;
#[cfg(feature = "python")]
use crate::memory::host_buffer::HostBuffer;

use crate::array::element::Element;
use crate::memory::storage::Storage;
/// Copies an array on its device into new memory of the same kind, and waits for the copy. The copy is writable whether or
/// not the original is, unless elements share their place: to write one would be to write others.
///
/// The layout stays the same. Only an array with axes that run backwards, which some consumers of copies cannot read, is
/// put together on the host, compact in C order.
///
/// # Errors
///
/// As [`stream_synchronize`] and [`CudaBuffer::zeroed`]; [`ErrorKind::DType`](crate::error::ErrorKind::DType) for packed elements that run
/// backwards.
///
/// # Safety
///
/// As [`stage`].
#[cfg(feature = "python")]
pub(crate) unsafe fn duplicate(info: &ArrayInfo) -> Result<(CudaBuffer, ArrayInfo)> {
    let driver = driver()?;
    let kind = match info.device().device_type {
        DeviceType::CUDA_HOST => MemoryKind::Pinned,
        DeviceType::CUDA_MANAGED => MemoryKind::Managed,
        _ => MemoryKind::Device,
    };
    let ordinal = match kind {
        MemoryKind::Device => info.device().device_id,
        // Where the original is, so that no context is made on a device that nobody uses.
        _ => crate::cuda::pointer::pointer_attributes(info.address())?
            .map_or(0, |attributes| attributes.ordinal()),
    };
    let (mut info, mut start) = (info.clone(), info.byte_range().start);
    let together;
    if info.strides().iter().any(|stride| *stride < 0) {
        // SAFETY: as the caller promises.
        let staged = unsafe { stage(&info) }?;
        // SAFETY: staged above, on the host.
        together = unsafe { HostBuffer::copy_of(&staged.info) }?;
        start = together.memory().address;
        let layout = Layout::contiguous(info.shape(), Order::C)?;
        info = ArrayInfo { layout, address: start, range: together.memory().range, ..info };
    } else {
        stream_synchronize(info.stream(), info.device())?;
    }
    let bytes = info.byte_range().len();
    let buffer = CudaBuffer::for_elements(kind, ordinal, u8::TYPE, bytes)?;
    // SAFETY: the array's own range, live as the caller promises, or put together above; the buffer is new and as long.
    unsafe { copy_now(driver, buffer.context, buffer.address, start, bytes) }?;
    let mutability = if info.layout().is_injective() { Mutability::Writable } else { info.mutability() };
    let info = ArrayInfo { mutability, ..moved(&info, buffer.address, buffer.device) };
    Ok((buffer, info))
}
