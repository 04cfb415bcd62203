//! Copies of device arrays in host memory. The elements are made contiguous on the device, then copied to the host.
#![expect(unsafe_code, reason = "fills memory that the caller vouches for")]

use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::cuda::context::{Relaxed, context_for};
use crate::cuda::copy::{Scratch, queue_copy, stage};
use crate::cuda::copy_plan::CopyPlan;
use crate::cuda::driver::driver;
use crate::cuda::handover::synchronize;
use crate::cuda::pool::with_spare_stream;
use crate::error::Result;
use crate::memory::host::strided::{HostArray, check_copied, copy_contiguous, filled_vec};
use crate::memory::host_vec::HostBuffer;

/// Copies the elements of a device array to any memory that the driver can access. They are first made contiguous on
/// their device. Waits for pending work on the array; the copy is complete on return. Returns `false` if the device has
/// no memory, or no memory pool, for the intermediate copy.
///
/// # Errors
///
/// As [`stream_synchronize`].
///
/// # Safety
///
/// The memory that `info` describes is live. `plan` copies its elements, and `to` has room for the copy.
pub(crate) unsafe fn copy_compacted(info: &ArrayInfo, plan: &CopyPlan, to: usize) -> Result<bool> {
    let driver = driver()?;
    synchronize(info)?;
    let bytes = plan.bytes();
    if bytes == 0 {
        return Ok(true);
    }
    let context = context_for(driver, info.device())?;
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    let (from, to) = (info.address, to as u64);
    let queue = |stream| {
        if plan.axes.is_empty() {
            // SAFETY: as the caller promises.
            return unsafe { driver.copy(to, from as u64, bytes, stream) }.map(|()| true);
        }
        // If there is no memory for the intermediate copy, the caller reorders the elements on the host.
        let Ok(compact) = Scratch::new(driver, bytes, stream) else { return Ok(false) };
        // SAFETY: as the caller promises; the scratch memory is new and as large as the copy.
        unsafe { queue_copy(driver, (context, stream), plan, from, compact.address) }?;
        // SAFETY: as above.
        unsafe { driver.copy(to, compact.address as u64, bytes, stream) }.map(|()| true)
    };
    let copied = with_spare_stream(driver, |stream| {
        let queued = queue(stream);
        // SAFETY: the stream is live.
        let finished = unsafe { driver.stream_synchronize(stream) };
        queued.and_then(|is_copied| finished.map(|()| is_copied))
    });
    Ok(copied?)
}

/// Copies elements from a device to the host, contiguous in `order`. Waits for pending work on the array. Without an error,
/// all copied elements are valid.
///
/// # Errors
///
/// As [`stream_synchronize`].
///
/// # Safety
///
/// As [`copy_compacted`]. `layout` is the layout of the elements.
unsafe fn copy_to_host(
    info: &ArrayInfo,
    (layout, element): (&Layout, &ElementType),
    order: Order,
    target: *mut u8,
) -> Result<()> {
    let plan = CopyPlan::compact(layout, order, element.size);
    // SAFETY: as the caller promises.
    if unsafe { copy_compacted(info, &plan, target.expose_provenance()) }? {
        // SAFETY: the whole target has been written.
        return unsafe { check_copied(element, target, plan.bytes()) };
    }
    // SAFETY: as the caller promises.
    let staged = unsafe { stage(info) }?;
    // SAFETY: the elements of the layout are live in `staged`; the target is as the caller promises.
    unsafe { copy_contiguous(HostArray { address: staged.info.address, layout, element }, order, target) }
}

/// Copies the elements of a device array to the host, contiguous in `order`. Waits for pending work on the array.
///
/// # Errors
///
/// As [`stream_synchronize`]; [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) if the vector cannot be
/// allocated; [`ErrorKind::DType`](crate::error::ErrorKind::DType) for other element types and for a byte that is not a
/// valid `bool`.
///
/// # Safety
///
/// The memory that `info` describes is live.
pub(crate) unsafe fn fetch_vec<T: Element>(info: &ArrayInfo, order: Order) -> Result<Vec<T>> {
    let layout = info.layout_of(&T::TYPE)?;
    // SAFETY: as the caller promises. The vector is new and has capacity for the elements.
    let fill = |target: *mut T| unsafe { copy_to_host(info, (&layout, &T::TYPE), order, target.cast()) };
    // SAFETY: `copy_to_host` writes all elements, which are valid values of `T`.
    unsafe { filled_vec(layout.numel(), fill) }
}

/// Copies a device array into host memory, contiguous in `order`. Waits for pending work on the array.
///
/// # Errors
///
/// As [`fetch_vec`].
///
/// # Safety
///
/// As [`fetch_vec`].
pub(crate) unsafe fn fetch_buffer(
    info: &ArrayInfo,
    element: &ElementType,
    order: Order,
) -> Result<HostBuffer> {
    let layout = info.layout_of(element)?;
    let buffer = HostBuffer::uninit(*element, layout.numel())?;
    let target = core::ptr::with_exposed_provenance_mut(buffer.address());
    // SAFETY: as the caller promises. The buffer is new and has room for the elements.
    unsafe { copy_to_host(info, (&layout, element), order, target) }?;
    Ok(buffer)
}
