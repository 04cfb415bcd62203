//! Copies of device arrays in host memory. The elements are made contiguous on the device, then copied to the host.
#![expect(unsafe_code, reason = "fills memory that the caller vouches for")]

use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::cuda::context::{Context, Relaxed, context_for};
use crate::cuda::copy::{copy_now, queue_copy};
use crate::cuda::copy_plan::CopyPlan;
use crate::cuda::driver::{driver, to_usize};
use crate::cuda::handover::synchronize;
use crate::cuda::pool::{allocate_on, finished};
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
    let copied = finished(driver, |stream| {
        if plan.axes.is_empty() {
            // SAFETY: as the caller promises.
            return unsafe { driver.copy(to, from as u64, bytes, stream) }.map(|()| true);
        }
        let ordinal = Context::current_ordinal(driver)?;
        // If there is no memory for the intermediate copy, the caller reorders the elements on the host.
        let Ok(compact) = allocate_on(driver, ordinal, bytes, stream) else { return Ok(false) };
        // SAFETY: as the caller promises; the intermediate memory is new and as large as the copy.
        let queued = unsafe { queue_copy(driver, (context, stream), plan, from, to_usize(compact)) };
        // SAFETY: as above.
        let queued = queued.and_then(|()| unsafe { driver.copy(to, compact, bytes, stream) });
        // SAFETY: the memory is freed once, after all work that was queued for it.
        let _ = unsafe { driver.memory_pool_free(compact, stream) };
        queued.map(|()| true)
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
    // All bytes that the elements span.
    let range = info.span();
    let staged = HostBuffer::uninit(u8::TYPE, range.len())?;
    let (driver, start) = (driver()?, staged.address());
    let context = context_for(driver, info.device())?;
    // SAFETY: the range is the array's own, live as the caller promises; the buffer is new and as long.
    unsafe { copy_now(driver, context, start, range.start, range.len()) }?;
    let address = start + (info.address - range.start);
    // SAFETY: the elements of the layout are live in `staged`; the target is as the caller promises.
    unsafe { copy_contiguous(HostArray { address, layout, element }, order, target) }
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
