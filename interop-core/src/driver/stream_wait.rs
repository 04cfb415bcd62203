//! Stream waits: one stream, or the host, waits for an event that is recorded on another stream.

use crate::driver::context::{
    Context, Entered, Relaxed, context_for, has_default_streams, with_each_context,
};
use crate::driver::device::Device;
use crate::driver::event::Event;
use crate::driver::functions::{Driver, Failure, RawStream, code, driver, run_blocking};
use crate::driver::pointer::memory_use;
use crate::driver::release::THREAD;
use crate::driver::release::hold::unless_captured;
use crate::driver::release::scope::ReleaseScope;
use crate::driver::stream::{LEGACY, capture, capture_error, capture_of, context_of_live, dead_stream};
use crate::driver::stream_handle::{PendingWork, StreamHandle};
use crate::error::{Result, text};

/// Makes work that is queued later on `waiter` wait for the work that is on `on` now. The host does not wait.
///
/// A default stream is that of the context in which memory of `device` is used: the current context if it belongs to
/// that device, else the device's primary context. Pinned and managed memory belongs to no device: if no context is
/// current, the default streams of every primary context in use are meant. The driver is not called if both are the
/// same stream, or if one is [`NothingPending`](StreamHandle::NothingPending).
///
/// # Errors
///
/// [`ErrorKind::StreamCapture`](crate::ErrorKind::StreamCapture) if one of the streams captures a graph and the other
/// is not part of the capture: the wait would invalidate the capture. A default stream without pending work needs no
/// wait and is no error. [`ErrorKind::Driver`](crate::ErrorKind::Driver) without a driver, and with the driver's answer
/// for a stream that was destroyed or a device that does not exist.
///
/// ```
/// use interop_core::{cuda, Device, StreamHandle};
///
/// // The same stream orders its work itself; no driver is needed.
/// cuda::stream_wait(StreamHandle::LegacyDefault, StreamHandle::LegacyDefault, Device::cuda(0))?;
/// cuda::stream_wait(StreamHandle::LegacyDefault, StreamHandle::NothingPending, Device::cuda(0))?;
/// # Ok::<(), interop_core::Error>(())
/// ```
pub fn stream_wait(waiter: StreamHandle, on: StreamHandle, device: Device) -> Result<()> {
    stream_wait_in(waiter, on, device, None).map(|_| ())
}

/// As [`stream_wait`], for memory of a known context. Returns whether the streams capture a graph, if that was queried.
pub(crate) fn stream_wait_in(
    to: StreamHandle,
    from: StreamHandle,
    device: Device,
    context: Option<Context>,
) -> Result<Option<bool>> {
    let (Some(source), Some(target)) = (from.to_raw(), to.to_raw()) else { return Ok(None) };
    if source == target {
        return Ok(None);
    }
    let (driver, from, to) = (driver()?, (from, source), (to, target));
    // Only the default streams depend on the current context.
    if [from, to].iter().all(|(stream, _)| matches!(stream, StreamHandle::Raw(_))) {
        return record_and_wait(driver, from, to, None, Fork::Refused).map(Some);
    }
    let mut captured = None;
    with_each_context(driver, device, context, |context| {
        captured = Some(record_and_wait(driver, from, to, Some(context), Fork::Refused)?);
        Ok(())
    })?;
    Ok(captured)
}

/// Whether a stream may become part of a capture by waiting for it. Whoever allows that makes it wait for the stream in the
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    Allowed,
    Refused,
}

/// Records an event on `from` and makes `to` wait for it. Returns whether both streams are part of a capture. `context`
/// is current, and is the context of the default streams.
///
/// Three more calls check the streams. A wait into or out of a capture would invalidate the capture or be swallowed by
/// it, so both streams are asked whether they capture. For a stream that was destroyed, that query always ends the
/// process. One of two other calls comes before it: recording the event, or `cuStreamGetCtx`. For a destroyed stream
/// these were seen to return an error at times, and to end the process at others.
fn record_and_wait(
    driver: &'static Driver,
    (from, source): (StreamHandle, RawStream),
    (to, target): (StreamHandle, RawStream),
    context: Option<Context>,
    fork: Fork,
) -> Result<bool> {
    let record = |of| Event::of_stream(driver, of, source).map_err(|failure| dead_stream(failure, from));
    // A stream with a handle has its own context, whatever the context of the default stream on the other side.
    let recorded = if let StreamHandle::Raw(_) = from { Some(record(None)?) } else { None };
    // While a blocking stream captures, recording an event on a default stream would invalidate the capture. So the
    // query comes first.
    let begun = capture(driver, from, source)?;
    context_of_live(driver, to, target)?;
    let joined = capture(driver, to, target)?;
    let is_fork = fork == Fork::Allowed && joined.is_none() && matches!(to, StreamHandle::Raw(_));
    if begun != joined && !is_fork {
        if recorded.is_none() && begun.is_none() && is_idle(driver, source) {
            return Ok(true);
        }
        let (who, other) = if begun.is_some() { (from, to) } else { (to, from) };
        let what = text!("a wait between this stream and the {other}, which is not part of the capture");
        return Err(capture_error(who, what));
    }
    let event = recorded.map_or_else(|| record(context), Ok)?;
    event.make_wait(target).map_err(|failure| dead_stream(failure, to))?;
    Ok(joined.is_some())
}

/// Returns whether no work is pending on a default stream of the current context. A capture then has nothing to wait
/// for.
fn is_idle(driver: &Driver, default_stream: RawStream) -> bool {
    let _relaxed = Relaxed::new(driver);
    // SAFETY: a default stream is always live.
    unsafe { driver.stream_query(default_stream) }.is_ok()
}

/// Waits on the host until the work that is on `stream` now is done, as a reader on the host needs it.
///
/// # Errors
///
/// As [`stream_wait`].
pub fn stream_synchronize(stream: StreamHandle, device: Device) -> Result<()> {
    synchronize_on((PendingWork::on(stream), device))
}

/// As [`stream_synchronize`], for a default stream of a context that may not be current.
///
/// # Errors
///
/// As [`stream_synchronize`].
pub(crate) fn synchronize_on((pending, device): StreamOnDevice) -> Result<()> {
    let Some((stream, raw)) = pending.name().and_then(|it| Some((it, it.to_raw()?))) else { return Ok(()) };
    let driver = driver()?;
    let stored = pending.context().and_then(|context| Context::from_driver(context.get()));
    // The work is gone with its context.
    if stored.is_some_and(is_gone) {
        return Ok(());
    }
    let own = context_of_live(driver, stream, raw)?.or(stored);
    with_each_context(driver, device, own, |context| {
        if capture(driver, stream, raw)?.is_some() {
            return Err(capture_error(stream, "a wait on the host"));
        }
        let _relaxed = Relaxed::new(driver);
        let event = Event::of_stream(driver, Some(context), raw);
        Ok(event.map_err(|failure| dead_stream(failure, stream))?.wait()?)
    })
}

/// As [`stream_wait`], for streams of which one may be the default stream of a context that is not current.
pub(crate) fn wait_in_contexts(waiter: PendingWork, on: PendingWork, device: Device) -> Result<()> {
    match (waiter.name(), on.name()) {
        (Some(to), Some(from)) if waiter.context().or(on.context()).is_none() => {
            stream_wait(to, from, device)
        }
        _ => wait_between((waiter, device), (on, device), Fork::Refused),
    }
}

/// A stream, and the device whose memory is used on it. The device selects the context of a default stream, unless that is
/// known.
pub(crate) type StreamOnDevice = (PendingWork, Device);

/// Returns the context of a stream, if it is a default stream.
pub(crate) fn context_of_default(
    driver: &Driver,
    (pending, device): StreamOnDevice,
) -> Result<Option<Context>> {
    match (pending.name(), pending.context()) {
        (Some(StreamHandle::LegacyDefault | StreamHandle::PerThreadDefault), Some(context)) => {
            Ok(Context::from_driver(context.get()))
        }
        (Some(StreamHandle::LegacyDefault | StreamHandle::PerThreadDefault), None) => {
            context_for(driver, device).map(Some)
        }
        _ => Ok(None),
    }
}

/// Returns the context of a stream: its own, or the one that is meant by a default stream.
pub(crate) fn context_of_stream(
    driver: &Driver,
    (handle, raw): (StreamHandle, RawStream),
    on: StreamOnDevice,
) -> Result<Context> {
    let own = context_of_live(driver, handle, raw)?;
    let default = own.map_or_else(|| context_of_default(driver, on), |own| Ok(Some(own)))?;
    default.map_or_else(|| context_for(driver, on.1), Ok)
}

/// Returns the device of a stream that is given by its handle. `None` for a default stream, and without a driver.
///
/// # Errors
///
/// As [`stream_wait`].
pub(crate) fn device_of_stream(on: PendingWork) -> Result<Option<Device>> {
    let (Some(handle @ StreamHandle::Raw(raw)), Ok(driver)) = (on.name(), driver()) else { return Ok(None) };
    let Some(context) = context_of_live(driver, handle, raw.get())? else { return Ok(None) };
    let ordinal = context.primary_ordinal().map_or_else(
        || {
            let _entered = context.enter(driver)?;
            Context::current_ordinal(driver)
        },
        Ok,
    );
    Ok(Some(Device::cuda(ordinal?)))
}

/// Makes the context of a stream current, if it is a default stream.
pub(crate) fn enter_default(
    driver: &Driver,
    stream: StreamOnDevice,
) -> Result<(Option<Context>, Option<Entered<'_>>)> {
    let context = context_of_default(driver, stream)?;
    Ok((context, context.map(|context| context.enter(driver)).transpose()?))
}

/// As [`stream_wait`], for streams that may be default streams of two contexts: these are not the same, although they have
/// one handle.
pub(crate) fn wait_between(waiter: StreamOnDevice, on: StreamOnDevice, fork: Fork) -> Result<()> {
    let (Some(to), Some(from)) = (waiter.0.name(), on.0.name()) else { return Ok(()) };
    let is_handle = |stream| matches!(stream, StreamHandle::Raw(_));
    if to == from && (is_handle(to) || (waiter.0.context() == on.0.context() && waiter.1 == on.1)) {
        return Ok(());
    }
    let (Some(source), Some(target)) = (from.to_raw(), to.to_raw()) else { return Ok(()) };
    let driver = driver()?;
    let contexts = (context_of_default(driver, waiter)?, context_of_default(driver, on)?);
    match contexts {
        (Some(waiting), Some(context)) if waiting != context => {
            wait_for_default_of(driver, (to, target, waiting), (from, source, context))
        }
        (Some(_), Some(_)) if to == from => Ok(()),
        (None, None) => record_and_wait(driver, (from, source), (to, target), None, fork).map(|_| ()),
        (waiting, context) => {
            let context = waiting.or(context);
            let _entered = match context.map(|context| context.enter(driver)).transpose() {
                // The work is gone with its context.
                Err(failure) if failure.is_final() => return Ok(()),
                entered => entered?,
            };
            record_and_wait(driver, (from, source), (to, target), context, fork).map(|_| ())
        }
    }
}

/// Makes a default stream of one context wait for a default stream of another.
fn wait_for_default_of(
    driver: &'static Driver,
    (to, target, waiting): (StreamHandle, RawStream, Context),
    (from, source, context): (StreamHandle, RawStream, Context),
) -> Result<()> {
    let not_captured = |stream, raw| match capture(driver, stream, raw)? {
        None => Ok(()),
        Some(_) => Err(capture_error(stream, "a wait for the default stream of another context")),
    };
    let event = {
        let _entered = context.enter(driver)?;
        not_captured(from, source)?;
        Event::of_stream(driver, Some(context), source).map_err(|failure| dead_stream(failure, from))?
    };
    let _entered = waiting.enter(driver)?;
    not_captured(to, target)?;
    Ok(event.make_wait(target)?)
}

/// Makes all later work of the context of memory wait for the work that is on a stream now, on every stream of that
/// context. The address 0 stands for memory of the device in general. Returns `false` if that is not possible: with drivers
/// before 12.5, or while a graph is captured elsewhere. A stream that captures a graph itself needs no such wait, because
/// the graph is ordered where it is launched.
///
/// # Errors
///
/// As [`stream_wait`].
pub(crate) fn make_context_wait((address, device): (usize, Device), on: StreamOnDevice) -> Result<bool> {
    let Some((from, source)) = on.0.name().and_then(|from| Some((from, from.to_raw()?))) else {
        return Ok(true);
    };
    let driver = driver()?;
    let own = context_of_stream(driver, (from, source), on)?;
    let waiting = match memory_use(address, device)? {
        Some((Some(context), _)) => context,
        _ => context_for(driver, device)?,
    };
    let event = {
        let _entered = own.enter(driver)?;
        if capture(driver, from, source)?.is_some() {
            return Ok(true);
        }
        Event::of_stream(driver, Some(own), source)
    };
    let _entered = waiting.enter(driver)?;
    let wait = || {
        if capture_of(driver, LEGACY).is_err() {
            return None;
        }
        // SAFETY: the event and the context come from the driver, which allows an event of another context.
        unsafe { driver.context_wait(waiting.to_raw().get(), event.as_ref().ok()?.raw()) }.ok()
    };
    Ok(unless_captured(ReleaseScope::of_context(waiting), wait).is_some())
}

/// Waits on the host for the work on a stream, detached from Python.
///
/// # Errors
///
/// As [`stream_synchronize`].
pub(crate) fn synchronize_stream_of((pending, device): StreamOnDevice) -> Result<()> {
    let mut done = Ok(());
    run_blocking(|| done = synchronize_on((pending, device)));
    done
}

/// Makes a default stream of `context` wait for the one with the same name in the context in which memory of `device`
/// is used.
///
/// # Errors
///
/// As [`stream_wait`].
#[cfg(any(feature = "cudarc", feature = "cuda-core"))]
pub(crate) fn wait_for_default_streams(
    default: StreamHandle,
    device: Device,
    context: Context,
) -> Result<()> {
    let Some(raw) = default.to_raw() else { return Ok(()) };
    let driver = driver()?;
    with_each_context(driver, device, None, |used| {
        if used == context {
            return Ok(());
        }
        wait_for_default_of(driver, (default, raw, context), (default, raw, used))
    })
}

/// Makes work that is queued later on `to` wait for all work that the release of the memory would wait for. This is the
/// stream wait for a producer that states no stream. `context` is the memory's context, if it has one.
///
/// # Errors
///
/// As [`stream_wait`].
pub(crate) fn wait_for_all_work(
    to: StreamHandle,
    device: Device,
    context: Option<Context>,
    scope: ReleaseScope,
) -> Result<()> {
    let Some(target) = to.to_raw() else { return Ok(()) };
    let (driver, to) = (driver()?, (to, target));
    // Only the default streams depend on the current context.
    if let StreamHandle::Raw(_) = to.0 {
        return wait_for_scope(driver, to, scope);
    }
    with_each_context(driver, device, context, |_| wait_for_scope(driver, to, scope))
}

/// As [`wait_for_all_work`]. If `to` is a default stream, its context is current.
fn wait_for_scope(
    driver: &'static Driver,
    (to, target): (StreamHandle, RawStream),
    scope: ReleaseScope,
) -> Result<()> {
    context_of_live(driver, to, target)?;
    if capture(driver, to, target)?.is_some() {
        return Err(capture_error(to, "a wait for all other work, which is not part of the capture"));
    }
    for event in record_contexts(driver, to, scope)? {
        event.make_wait(target).map_err(|failure| dead_stream(failure, to))?;
    }
    Ok(())
}

/// Waits on the host for all work of the contexts of a scope.
///
/// # Errors
///
/// As [`stream_synchronize`].
pub(crate) fn synchronize_all_work(scope: ReleaseScope) -> Result<()> {
    let driver = driver()?;
    let events = record_contexts(driver, StreamHandle::LegacyDefault, scope)?;
    let _relaxed = Relaxed::new(driver);
    Ok(events.iter().try_for_each(|event| event.in_context(|| event.wait()))?)
}

/// Records an event after all work of each context of a scope, for a wait of `to`.
///
/// # Errors
///
/// [`ErrorKind::StreamCapture`](crate::ErrorKind::StreamCapture) if releases are held, or a library that can be asked
/// captures a graph: the event would invalidate the capture.
fn record_contexts(
    driver: &'static Driver,
    to: StreamHandle,
    scope: ReleaseScope,
) -> Result<Vec<Event<'static>>> {
    // The stream of the consumer may be another one than `to`.
    let consumer = THREAD.with(|thread| thread.consumer.get()).filter(|consumer| *consumer != to);
    if let Some((consumer, raw)) = consumer.and_then(|stream| Some((stream, stream.to_raw()?))) {
        context_of_live(driver, consumer, raw)?;
        if capture(driver, consumer, raw)?.is_some() {
            return Err(capture_error(consumer, "a wait for all work of a context"));
        }
    }
    let contexts = scope.all(driver)?;
    let record = || contexts.filter_map(|context| record_context(driver, to, context).transpose()).collect();
    unless_captured(scope, || Some(record()))
        .unwrap_or_else(|| Err(capture_error(to, "a wait for all work of a context")))
}

/// Records an event after all work of a context. Drivers before 12.5 have no such event, and the host waits.
fn record_context(
    driver: &'static Driver,
    to: StreamHandle,
    context: Context,
) -> Result<Option<Event<'static>>> {
    let _entered = context.enter(driver)?;
    // A capture on a non-blocking stream cannot be detected.
    if capture_of(driver, LEGACY).is_err_and(|failure| failure.code == code::CAPTURE_IMPLICIT) {
        return Err(capture_error(to, "a wait for all work of a context in which a stream is capturing"));
    }
    match Event::of_context(driver, context) {
        Ok(event) => Ok(Some(event)),
        Err(failure) if failure.code == code::NOT_FOUND => {
            let mut done = Ok(());
            // SAFETY: the function has no preconditions; the context is current.
            run_blocking(|| done = unsafe { driver.context_synchronize() });
            done?;
            Ok(None)
        }
        Err(failure) => Err(failure.into()),
    }
}

impl PendingWork {
    /// Pending work on a default stream of `context`.
    pub(crate) fn in_context(stream: StreamHandle, context: Context) -> Self {
        Self::on_default_of(stream, context.to_raw())
    }

    /// Pending work on the legacy default stream of a context: the given one, else the one in which memory of `device` is
    /// used now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) for a device that does not exist.
    pub(crate) fn on_default_stream(device: Device, context: Option<Context>) -> Result<Self> {
        let legacy = StreamHandle::LegacyDefault;
        let context = match (context, driver()) {
            (Some(context), _) => context,
            (None, Ok(driver)) => context_for(driver, device)?,
            (None, Err(_)) => return Ok(Self::on(legacy)),
        };
        Ok(Self::in_context(legacy, context))
    }
}

/// Returns the handle that means the stream with pending work on this thread. `None` if no handle does. Nothing is pending in
/// a context that is gone.
pub(crate) fn stream_here(pending: PendingWork, device: Device) -> Option<StreamHandle> {
    match pending.context().and_then(|context| Context::from_driver(context.get())) {
        Some(context) if !names(context, device) => is_gone(context).then_some(StreamHandle::NothingPending),
        _ => pending.name(),
    }
}

#[cold]
fn is_gone(context: Context) -> bool {
    driver().is_ok_and(|driver| context.enter(driver).is_err_and(Failure::is_final))
}

/// Returns whether the handles of the default streams mean those of `context` on this thread, for memory of `device`.
fn names(context: Context, device: Device) -> bool {
    let is_current = || driver().is_ok_and(|driver| Context::current(driver) == Ok(Some(context)));
    has_default_streams(context, device) || is_current()
}
