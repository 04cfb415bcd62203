//! Order between streams: an event edge, or a wait of the host.

use super::block::without_locks;
use super::context::{Context, Relaxed};
use super::driver::{Driver, Failure, Outcome, RawStream, code, driver};
use super::event::Event;
use super::place::in_each;
use super::release::Fence;
use super::stand_in::bring_back;
use super::{is_available, poll_releases};
use crate::device::{Device, DeviceType};
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;
use crate::stream::StreamHandle;

/// Makes work that is queued later on `to` wait for the work that is on `from` now. Nothing waits on the host.
///
/// The default streams are those of the context in which memory of `device` is used: the current one where it is of
/// that device, else the device's primary context. Pinned and managed memory is of no device: where no context is current,
/// those of every primary context in use are meant. Nothing is called when both are the same stream, or when one is
/// [`NothingPending`](StreamHandle::NothingPending).
///
/// # Errors
///
/// [`ErrorKind::Capture`] when one of the streams captures a graph and the other is not part of the capture: the driver
/// would spoil the capture, so it is not called. [`ErrorKind::Driver`] without a driver, and with the driver's answer for
/// a stream that was destroyed, or a device that does not exist.
///
/// ```
/// use interop_core::{cuda, Device, StreamHandle};
///
/// // The same stream orders its work itself; no driver is needed.
/// cuda::order(StreamHandle::LegacyDefault, StreamHandle::LegacyDefault, Device::cuda(0))?;
/// cuda::order(StreamHandle::NothingPending, StreamHandle::LegacyDefault, Device::cuda(0))?;
/// # Ok::<(), interop_core::Error>(())
/// ```
pub fn order(from: StreamHandle, to: StreamHandle, device: Device) -> Result<()> {
    order_in(from, to, device, None)
}

/// As [`order`], for memory of a context that is known.
pub(crate) fn order_in(
    from: StreamHandle,
    to: StreamHandle,
    device: Device,
    context: Option<Context>,
) -> Result<()> {
    let (Some(source), Some(target)) = (from.to_raw(), to.to_raw()) else { return Ok(()) };
    if source == target {
        return Ok(());
    }
    let (driver, from, to) = (driver()?, (from, source), (to, target));
    // Only the default streams depend on what is current.
    if [from, to].iter().all(|(stream, _)| matches!(stream, StreamHandle::Raw(_))) {
        return edge(driver, from, to, None);
    }
    in_each(driver, device, context, |context| edge(driver, from, to, Some(context)))
}

/// The edge itself: an event of the pool is recorded and waited for. `context` is current, and that of the default streams.
///
/// Three more calls make sure of the streams. An edge into or out of a capture would spoil it or be swallowed by it, so both
/// are asked whether they capture. That question is always fatal for a stream that was destroyed; recording and
/// `cuStreamGetCtx`, one of which comes before it, were seen to answer an error at times, and to end the process at others.
fn edge(
    driver: &'static Driver,
    (from, source): (StreamHandle, RawStream),
    (to, target): (StreamHandle, RawStream),
    context: Option<Context>,
) -> Result<()> {
    let record = |of| Event::of_stream(driver, of, source).map_err(|failure| lost(failure, from));
    let (event, begun) = if let StreamHandle::Raw(_) = from {
        // Whatever the default stream on the other side is one of: the stream has its own context.
        let event = record(None)?;
        (event, capture(driver, from, source)?)
    } else {
        // Recorded on a default stream while a blocking stream captures, an event would spoil the capture.
        let begun = capture(driver, from, source)?;
        (record(context)?, begun)
    };
    live(driver, to, target)?;
    let joined = capture(driver, to, target)?;
    if begun != joined {
        let (who, other) = if begun.is_some() { (from, to) } else { (to, from) };
        let what = text!("an order with the {other}, which is not part of the capture");
        return Err(capturing(who, what));
    }
    event.make_wait(target).map_err(|failure| lost(failure, to))
}

/// Waits on the host until the work that is on `stream` now is done: what a reader on the host needs.
///
/// # Errors
///
/// As [`order`].
pub fn wait(stream: StreamHandle, device: Device) -> Result<()> {
    let Some(raw) = stream.to_raw() else { return Ok(()) };
    let driver = driver()?;
    let own = live(driver, stream, raw)?;
    in_each(driver, device, own, |context| {
        if capture(driver, stream, raw)?.is_some() {
            return Err(capturing(stream, "a wait of the host"));
        }
        let _relaxed = Relaxed::new(driver);
        let event = Event::of_stream(driver, Some(context), raw);
        Ok(event.map_err(|failure| lost(failure, stream))?.wait()?)
    })
}

/// Orders the work that is pending on an array before a consumer's stream.
///
/// # Errors
///
/// As [`order`].
#[inline]
pub(crate) fn hand_over(facts: &Facts, consumer: StreamHandle) -> Result<()> {
    if facts.device().device_type == DeviceType::CPU {
        return Ok(());
    }
    poll_releases();
    order(facts.stream(), consumer, facts.device())
}

/// Orders work on an array that was queued on `stream` before what comes next on the array's own stream.
///
/// # Errors
///
/// [`ErrorKind::Stream`] for an array that has no stream, and as [`order`].
pub(crate) fn take_back(facts: &Facts, stream: StreamHandle) -> Result<()> {
    if facts.device().device_type == DeviceType::CPU || stream == StreamHandle::NothingPending {
        return Ok(());
    }
    if facts.stream() == StreamHandle::NothingPending {
        let found = text!("{}, and work on the {stream}", facts.stream());
        let allowed = "a struct whose `stream` field names a stream, on which the work can be joined";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    order(stream, facts.stream(), facts.device())?;
    bring_back(facts.stream(), facts.device())
}

/// Waits for the work that is pending on an array that a consumer on the host is about to get.
///
/// # Errors
///
/// As [`wait`].
#[cfg(feature = "python")]
#[inline]
pub(crate) fn hand_to_host(facts: &Facts) -> Result<()> {
    if facts.device().device_type == DeviceType::CPU {
        return Ok(());
    }
    poll_releases();
    wait(facts.stream(), facts.device())
}

/// Waits for the work that is pending on memory that the host is about to read or write. Without a driver there is none.
///
/// # Errors
///
/// As [`wait`].
pub(crate) fn wait_for_host(stream: StreamHandle, device: Device) -> Result<()> {
    if is_available() { wait(stream, device) } else { Ok(()) }
}

/// Whether a stream that joins with the legacy default stream of the current context captures a graph, which whatever
/// names that stream would spoil; no without a driver.
#[cfg(feature = "cudarc")]
pub(crate) fn joins_a_capture() -> bool {
    driver().is_ok_and(|driver| capture_of(driver, LEGACY).is_err_and(Failure::is_about_capture))
}

/// Orders a default stream, of the context in which memory of `device` is used, before the one of `context` that has the
/// same name.
///
/// # Errors
///
/// As [`order`].
#[cfg(feature = "cudarc")]
pub(crate) fn order_namesakes(default: StreamHandle, device: Device, context: Context) -> Result<()> {
    let Some(raw) = default.to_raw() else { return Ok(()) };
    let driver = driver()?;
    in_each(driver, device, None, |used| {
        if used == context {
            return Ok(());
        }
        let refused = || Err(capturing(default, "an order with that of another context"));
        if capture(driver, default, raw)?.is_some() {
            return refused();
        }
        let event = Event::of_stream(driver, Some(used), raw).map_err(|failure| lost(failure, default))?;
        let _entered = context.enter(driver)?;
        if capture(driver, default, raw)?.is_some() {
            return refused();
        }
        Ok(event.make_wait(raw)?)
    })
}

/// Whether a stream that is live captures a graph, as any but the legacy default stream can.
pub(crate) fn captures(stream: StreamHandle) -> bool {
    let raw = stream.to_raw().filter(|raw| *raw != LEGACY);
    let (Some(raw), Ok(driver)) = (raw, driver()) else { return false };
    capture_of(driver, raw).is_ok_and(|capture| capture.is_some())
}

/// Makes work that is queued later on `to` wait for all work that the release of the memory would come after: the edge for
/// a producer that names no stream. `context` is that of the memory, if it is of one.
///
/// # Errors
///
/// As [`order`].
pub(crate) fn order_all(
    to: StreamHandle,
    device: Device,
    context: Option<Context>,
    fence: Fence,
) -> Result<()> {
    let Some(target) = to.to_raw() else { return Ok(()) };
    let (driver, to) = (driver()?, (to, target));
    // Only the default streams depend on what is current.
    if let StreamHandle::Raw(_) = to.0 {
        return all_before(driver, to, fence);
    }
    in_each(driver, device, context, |_| all_before(driver, to, fence))
}

/// As [`order_all`], for a default stream with its context current.
fn all_before(driver: &'static Driver, (to, target): (StreamHandle, RawStream), fence: Fence) -> Result<()> {
    live(driver, to, target)?;
    if capture(driver, to, target)?.is_some() {
        return Err(capturing(to, "an order with all other work, which is not part of the capture"));
    }
    let others = fence.others(driver)?;
    for context in fence.own().into_iter().chain(others) {
        if let Some(event) = event_of_all(driver, to, context)? {
            event.make_wait(target).map_err(|failure| lost(failure, to))?;
        }
    }
    Ok(())
}

/// An event after all work of a context. Before 12.5 there is none, and the host waits.
fn event_of_all(
    driver: &'static Driver,
    to: StreamHandle,
    context: Context,
) -> Result<Option<Event<'static>>> {
    let _entered = context.enter(driver)?;
    // A capture on a non-blocking stream cannot be seen.
    if capture_of(driver, LEGACY).is_err_and(|failure| failure.code == code::CAPTURE_IMPLICIT) {
        return Err(capturing(to, "an order with all work of the context, in which a stream captures"));
    }
    match Event::of_context(driver, context) {
        Ok(event) => Ok(Some(event)),
        Err(failure) if failure.code == code::NOT_FOUND => {
            let mut done = Ok(());
            // SAFETY: no conditions; the context is current.
            without_locks(|| done = unsafe { driver.context_synchronize() });
            done?;
            Ok(None)
        }
        Err(failure) => Err(failure.into()),
    }
}

/// `CU_STREAM_LEGACY`.
pub(super) const LEGACY: RawStream = 1;

/// The context of a stream that is named by its handle, which is asked for before all else: for a stream that was destroyed
/// it answers an error, and every other question would be fatal.
pub(super) fn live(driver: &Driver, handle: StreamHandle, raw: RawStream) -> Result<Option<Context>> {
    match handle {
        StreamHandle::Raw(_) => context_of(driver, raw).map_err(|failure| lost(failure, handle)),
        _ => Ok(None),
    }
}

/// The context of a stream; an error for one that was destroyed.
pub(super) fn context_of(driver: &Driver, stream: RawStream) -> Outcome<Option<Context>> {
    let mut context = 0;
    // SAFETY: the handle is or was a stream, as everybody promises who names one; a place for a context.
    unsafe { driver.stream_context(stream, &raw mut context) }?;
    Ok(Context::answered(context))
}

/// As [`capture_of`], with the error that a user reads.
fn capture(driver: &Driver, handle: StreamHandle, raw: RawStream) -> Result<Option<u64>> {
    capture_of(driver, raw).map_err(|failure| match failure.code {
        code::CAPTURE_IMPLICIT => capturing(handle, "work on a stream that joins with the one that captures"),
        _ => lost(failure, handle),
    })
}

/// The capture that a stream takes part in.
pub(super) fn capture_of(driver: &Driver, stream: RawStream) -> Outcome<Option<u64>> {
    let mut status = 0;
    // SAFETY: a stream whose context the driver knows, or a default stream; a place for a status.
    unsafe { driver.stream_is_capturing(stream, &raw mut status) }?;
    if status == 0 {
        return Ok(None);
    }
    let (mut id, null) = (0, core::ptr::null_mut());
    // SAFETY: as above; a place for the id, and null for what is not asked.
    unsafe { driver.stream_capture(stream, &raw mut status, &raw mut id, null, null, null) }?;
    Ok(Some(id))
}

/// The error for a stream that the driver does not take.
pub(super) fn lost(failure: Failure, stream: StreamHandle) -> Error {
    failure.expecting(format_args!("a live stream of this process, not the {stream}"))
}

#[cold]
fn capturing(stream: StreamHandle, what: impl core::fmt::Display) -> Error {
    let found = text!("{what} ({stream}), while a graph is captured");
    let allowed = "the same stream on both sides, or no ordering (-1), while a graph is captured";
    Error::new(ErrorKind::Capture, "stream", found, allowed)
}
