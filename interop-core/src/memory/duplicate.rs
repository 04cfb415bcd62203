//! Copies of arrays in new memory of the same kind.
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
/// Copies an array into new memory of the same kind on its device, and waits for the copy. The copy is writable, unless
/// indices share elements.
///
/// The layout stays the same. An array with negative strides, which some consumers of copies cannot read, is first made
/// C-contiguous on the host.
///
/// # Errors
///
/// As [`stream_synchronize`] and [`CudaBuffer::zeroed`]; [`ErrorKind::DType`](crate::error::ErrorKind::DType) for
/// packed elements with negative strides.
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
        // Use the original's device, so that no context is created on an unused one.
        _ => crate::cuda::pointer::pointer_attributes(info.address())?
            .map_or(0, |attributes| attributes.ordinal()),
    };
    let (mut info, mut start) = (info.clone(), info.byte_range().start);
    let contiguous;
    if info.strides().iter().any(|stride| *stride < 0) {
        // SAFETY: forwarded to the caller.
        let staged = unsafe { stage(&info) }?;
        // SAFETY: `staged` is live host memory, filled above.
        contiguous = unsafe { HostBuffer::copy_of(&staged.info) }?;
        start = contiguous.memory().address;
        let layout = Layout::contiguous(info.shape(), Order::C)?;
        info = ArrayInfo { layout, address: start, range: contiguous.memory().range, ..info };
    } else {
        stream_synchronize(info.stream(), info.device())?;
    }
    let bytes = info.byte_range().len();
    let buffer = CudaBuffer::for_elements(kind, ordinal, u8::TYPE, bytes)?;
    // SAFETY: the source is the range of the live array or of `contiguous`; the new buffer has as many bytes.
    unsafe { copy_now(driver, buffer.context, buffer.address, start, bytes) }?;
    let mutability = if info.layout().is_injective() { Mutability::Writable } else { info.mutability() };
    let info = ArrayInfo { mutability, ..moved(&info, buffer.address, buffer.device) };
    Ok((buffer, info))
}
