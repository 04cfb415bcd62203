//! Copies of device arrays to the host. The elements are made contiguous on their device.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use interop_kernel::copy_plan::CopyPlan;

use crate::array::element::{Element, ElementType};
use crate::array::layout::Layout;
use crate::array::layout::order::Order;
use crate::driver::context::{Context, Relaxed, context_for};
use crate::driver::functions::{driver, to_usize};
use crate::error::Result;
use crate::memory::copy::device::{contiguous_plan, copy_now, queue_copy};
use crate::memory::copy::host::{axes_in_elements, copy_axes, filled_vec};
use crate::memory::host::cells::check_bytes;
use crate::memory::host_vec::HostBuffer;
use crate::order::array_info::ArrayInfo;
use crate::order::claim::{Claim, shared_elements};
use crate::order::pool::{PoolOf, allocate_on};
use crate::order::wait::{Waiter, queue_and_finish};

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
pub(crate) unsafe fn copy_compacted(
    info: &ArrayInfo,
    claim: &Claim,
    plan: &CopyPlan,
    to: usize,
) -> Result<bool> {
    let driver = driver()?;
    info.work().order_before(Waiter::Host, claim)?;
    let bytes = plan.bytes();
    if bytes == 0 {
        return Ok(true);
    }
    let context = context_for(driver, info.device())?;
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    let (from, to) = (info.unwatched_address, to as u64);
    let copied = queue_and_finish(driver, |stream| {
        let raw = stream.raw;
        if plan.axes.is_empty() {
            // SAFETY: as the caller promises.
            return unsafe { driver.copy(to, from as u64, bytes, raw) }.map(|()| true);
        }
        let ordinal = Context::current_ordinal(driver)?;
        // If there is no memory for the intermediate copy, the caller reorders the elements on the host.
        let Ok(compact) = allocate_on(driver, PoolOf::device(ordinal), bytes, raw) else { return Ok(false) };
        // SAFETY: as the caller promises; the intermediate memory is new and as large as the copy.
        let queued = unsafe { queue_copy(driver, stream, plan, from, to_usize(compact)) };
        // SAFETY: as above.
        let queued = queued.and_then(|()| unsafe { driver.copy(to, compact, bytes, raw) });
        // SAFETY: the memory is freed once, after all work that was queued for it.
        let _ = unsafe { driver.memory_pool_free(compact, raw) };
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
unsafe fn fetch(
    info: &ArrayInfo,
    layout: &Layout,
    element: &ElementType,
    order: Order,
    target: *mut u8,
) -> Result<()> {
    let plan = contiguous_plan(layout, order, element.size);
    let claim = Claim::by_device(shared_elements(info), false, None)?;
    // SAFETY: as the caller promises.
    if unsafe { copy_compacted(info, &claim, &plan, target.expose_provenance()) }? {
        // SAFETY: the whole target has been written.
        return unsafe { check_bytes(element, target, plan.bytes()) };
    }
    // All bytes that the elements span.
    let range = info.unwatched_range();
    let staged = HostBuffer::uninit(u8::TYPE, range.len())?;
    let (driver, start) = (driver()?, staged.address());
    let context = context_for(driver, info.device())?;
    // SAFETY: the range is the array's own, live as the caller promises; the buffer is new and as long.
    unsafe { copy_now(driver, context, start, range.start, range.len()) }?;
    let from = with_exposed_provenance(start + (info.unwatched_address - range.start));
    // SAFETY: the elements of the layout are live in `staged`; the target is as the caller promises.
    unsafe { copy_axes(&axes_in_elements(&plan, element.size), element, from, target) }
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
    let fill = |target: *mut T| unsafe { fetch(info, &layout, &T::TYPE, order, target.cast()) };
    // SAFETY: `fetch` writes all elements, which are valid values of `T`.
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
    let target = with_exposed_provenance_mut(buffer.address());
    // SAFETY: as the caller promises. The buffer is new and has room for the elements.
    unsafe { fetch(info, &layout, element, order, target) }?;
    Ok(buffer)
}
