//! Arrays that state no device: the driver reports the device of their address.

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::driver::driver;
use crate::cuda::missing_stream::wait_for_missing_stream;
use crate::cuda::pointer::{PointerAttributes, host_address};
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_wait::stream_wait_in;
use crate::cuda::verify::pointer_attributes_of;
use crate::error::Result;

/// Completes the description of an array that states no device, and makes `consumer` wait for the work that is pending
/// on the array's stream. The device is the one that the driver reports. The caller then sets the array's stream to
/// `consumer`.
///
/// `stated` says whether the producer stated its stream, or that it has none. Returns the release scope, and whether
/// `consumer` captures a graph if that was queried.
///
/// # Errors
///
/// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for an address that is not CUDA memory,
/// [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation, and as
/// [`stream_wait`](crate::cuda::stream_wait::stream_wait).
pub(crate) fn locate_and_wait(
    info: &mut ArrayInfo,
    stated: bool,
    consumer: StreamHandle,
) -> Result<(Option<ReleaseScope>, Option<bool>)> {
    let attributes = pointer_attributes_of(info)?;
    info.device = match &attributes {
        Some(attributes) => attributes.device(),
        None => current_device()?,
    };
    if info.device == Device::CUDA_HOST {
        // The interface states the address for devices, which may differ from the host address for registered memory.
        // An `ArrayInfo` holds the host address. Kernel views look up the other one (`device_address`).
        info.move_to(host_address(info.address)?);
    }
    let context = attributes.as_ref().and_then(PointerAttributes::context);
    let scope = match attributes {
        Some(attributes) => Some(attributes.scope(driver()?).holding(info.span().len())),
        None => None,
    };
    let pending = info.stream().unwrap_or(StreamHandle::NothingPending);
    let captured = match (scope, stated) {
        // An array without elements has no pending work.
        (None, _) => None,
        (_, true) => stream_wait_in(consumer, pending, info.device, context)?,
        (Some(scope), false) => {
            wait_for_missing_stream(consumer, info.device, context, scope)?;
            None
        }
    };
    Ok((scope, captured))
}

/// Returns the current device, for an array without elements, which has no address to query. Without a current context
/// this is device 0.
pub(crate) fn current_device() -> Result<Device> {
    let Ok(driver) = driver() else { return Ok(Device::cuda(0)) };
    let Some(_) = Context::current(driver)? else { return Ok(Device::cuda(0)) };
    Ok(Device::cuda(Context::current_ordinal(driver)?))
}
