//! Arrays that name no device: the driver says where their address is.

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::stream::StreamHandle;
use crate::cuda::context::Context;
use crate::cuda::driver::driver;
use crate::cuda::missing_stream::wait_for_missing_stream;
use crate::cuda::pointer::{PointerAttributes, host_address};
use crate::cuda::release::queue::poll_in_passing;
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::stream_wait::stream_wait_in;
use crate::cuda::verify::pointer_attributes_of;
use crate::error::Result;

/// Completes the facts of an array that named no device: the driver says which, the work that is pending on its stream is
/// ordered before work on `consumer`, which the caller notes. It gives back what the release has to come after, and whether `consumer`
/// captures a graph, if that was asked. `stated`: whether the
/// producer said which stream that is, or that there is none.
///
/// # Errors
///
/// [`ErrorKind::Device`](crate::error::ErrorKind::Device) for an address that is not CUDA's,
/// [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation, and as [`stream_wait`](crate::cuda::stream_wait::order).
pub(crate) fn locate_and_wait(
    info: &mut ArrayInfo,
    stated: bool,
    consumer: StreamHandle,
) -> Result<(Option<ReleaseScope>, Option<bool>)> {
    poll_in_passing();
    let attributes = pointer_attributes_of(info)?;
    info.device = match &attributes {
        Some(attributes) => attributes.device(),
        None => current_device()?,
    };
    if info.device == Device::CUDA_HOST {
        // The interface asks for an address that devices can use, and that of registered memory may be another than the
        // host's. Here it is known by the host's; kernel views ask for the other (`device_address`).
        info.move_to(host_address(info.address)?);
    }
    let context = attributes.as_ref().and_then(PointerAttributes::context);
    let scope = match attributes {
        Some(attributes) => Some(attributes.scope(driver()?).holding(info.byte_range().len())),
        None => None,
    };
    let pending = info.stream();
    let captured = match (scope, stated) {
        // No elements, no work.
        (None, _) => None,
        (_, true) => stream_wait_in(consumer, pending, info.device, context)?,
        (Some(scope), false) => {
            wait_for_missing_stream(consumer, info.device, context, scope)?;
            None
        }
    };
    Ok((scope, captured))
}

/// The device of an array without elements, which has no address to ask for: the one that is current.
pub(crate) fn current_device() -> Result<Device> {
    let Ok(driver) = driver() else { return Ok(Device::cuda(0)) };
    let Some(_) = Context::current(driver)? else { return Ok(Device::cuda(0)) };
    Ok(Device::cuda(Context::current_ordinal(driver)?))
}
