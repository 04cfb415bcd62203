//! Arrays that name no device, as those of the CUDA Array Interface: the driver names it, and their work is ordered.

use core::sync::atomic::{AtomicU8, Ordering};

#[cfg(feature = "python")]
use super::check::fence_for;
use super::check::located;
use super::context::Context;
use super::driver::driver;
use super::order::{order_all, order_in};
use super::parked::poll_releases;
use super::pointer::{PointerFacts, host_address};
use super::release::Fence;
use crate::device::Device;
use crate::error::Result;
use crate::facts::Facts;
use crate::stream::StreamHandle;

/// What an import orders before the consumer's work when a producer says nothing of streams.
///
/// The CUDA Array Interface has a `stream` since version 3. PyTorch, JAX, Warp and DALI write version 2, and work may be
/// pending on what they hand out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum UnstatedStream {
    /// All work of the memory's context, whatever the stream: one event, nothing waits on the host (before driver 12.5 the
    /// host waits, as there is no such event). For memory that is of no context or that all devices reach, from a pool,
    /// pinned or managed, it is the work of every context that its release comes after
    /// ([`ReleasePolicy::AfterContext`](super::ReleasePolicy::AfterContext)). It cannot be had while a graph is captured in
    /// such a context.
    #[default]
    OrderAll,
    /// The work on the legacy default stream, and so on every blocking stream.
    LegacyDefault,
    /// Nothing: the caller has synchronized.
    NothingPending,
}

static UNSTATED: AtomicU8 = AtomicU8::new(UnstatedStream::OrderAll as u8);

/// Sets what is ordered before work on arrays whose producer says nothing of streams, for the whole program.
///
/// ```
/// use interop_core::cuda::{UnstatedStream, set_unstated_stream, unstated_stream};
///
/// assert_eq!(unstated_stream(), UnstatedStream::OrderAll);
/// set_unstated_stream(UnstatedStream::NothingPending); // the program synchronizes before it hands arrays over
/// assert_eq!(unstated_stream(), UnstatedStream::NothingPending);
/// ```
pub fn set_unstated_stream(policy: UnstatedStream) {
    UNSTATED.store(policy as u8, Ordering::Relaxed);
}

/// What is ordered before work on arrays whose producer says nothing of streams.
#[must_use]
pub fn unstated_stream() -> UnstatedStream {
    match UNSTATED.load(Ordering::Relaxed) {
        0 => UnstatedStream::OrderAll,
        1 => UnstatedStream::LegacyDefault,
        _ => UnstatedStream::NothingPending,
    }
}

/// Completes the facts of an array that named no device: the driver says which, the work that is pending on its stream is
/// ordered before work on `consumer`, which the caller notes, and what its release has to come after is given back. `stated`: whether the
/// producer said which stream that is, or that there is none.
///
/// # Errors
///
/// [`ErrorKind::Device`](crate::ErrorKind::Device) for an address that is not CUDA's,
/// [`ErrorKind::Bounds`](crate::ErrorKind::Bounds) for elements outside the allocation, and as [`order`](super::order).
pub(crate) fn arrive(facts: &mut Facts, stated: bool, consumer: StreamHandle) -> Result<Option<Fence>> {
    poll_releases();
    let known = located(facts)?;
    facts.device = match &known {
        Some(known) => known.device(),
        None => current_device()?,
    };
    if facts.device == Device::CUDA_HOST {
        // The interface asks for an address that devices can use, and that of registered memory may be another than the
        // host's. Here it is known by the host's; kernel views ask for the other (`device_address`).
        facts.move_to(host_address(facts.address)?);
    }
    let context = known.as_ref().and_then(PointerFacts::context);
    let fence = match known {
        Some(known) => Some(known.fence(driver()?)),
        None => None,
    };
    let pending = facts.stream;
    match (fence, stated) {
        // No elements, no work.
        (None, _) => {}
        (_, true) => order_in(pending, consumer, facts.device, context)?,
        (Some(fence), false) => order_after_unstated(consumer, facts.device, context, fence)?,
    }
    Ok(fence)
}

/// Orders the work of a producer that says nothing of streams before `consumer`, as the user wishes.
///
/// # Errors
///
/// As [`order`](super::order).
fn order_after_unstated(
    consumer: StreamHandle,
    device: Device,
    context: Option<Context>,
    fence: Fence,
) -> Result<()> {
    match unstated_stream() {
        UnstatedStream::NothingPending => Ok(()),
        UnstatedStream::LegacyDefault => order_in(StreamHandle::LegacyDefault, consumer, device, context),
        UnstatedStream::OrderAll => order_all(consumer, device, context, fence),
    }
}

/// As [`order_after_unstated`], for memory of CUDA's whose context is not known.
#[cfg(feature = "python")]
pub(crate) fn order_unstated(consumer: StreamHandle, device: Device) -> Result<()> {
    order_after_unstated(consumer, device, None, fence_for(driver()?, device))
}

/// The device of an array without elements, which has no address to ask for: the one that is current.
pub(crate) fn current_device() -> Result<Device> {
    let Ok(driver) = driver() else { return Ok(Device::cuda(0)) };
    let Some(_) = Context::current(driver)? else { return Ok(Device::cuda(0)) };
    Ok(Device::cuda(Context::current_ordinal(driver)?))
}
