//! Order: who waits for what, now. `release` decides after what memory is freed.
//!
//! [`order`] is the only function that makes a stream, the host or a context wait for work of others. A block of memory also makes
//! the streams of its own uses wait for each other (`pool`, `uses`, `cuda::block`). ARCHITECTURE.md has the table of waiters and
//! work, with the driver calls of each cell.

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, Relaxed};
use crate::driver::event::Event;
use crate::driver::functions::{CUstream, Driver, DriverError, Outcome, code, driver, run_blocking};
use crate::driver::number::SharedNumber;
use crate::driver::pointer::memory_use;
use crate::driver::reach::Reach;
use crate::driver::stream::{LEGACY, LocatedStream, OwnStream, Stream, capture_error, capture_of};
use crate::error::{Result, text};
use crate::order::release::THREAD;
use crate::order::release::hold::unless_captured;
use crate::order::uses::Uses;
use crate::process::settings::unordered;

/// Who waits.
#[derive(Clone, Copy)]
pub(crate) enum Waiter {
    /// Where a stream is `NothingPending`.
    Nobody,
    /// What is queued later on a stream.
    Stream(Stream),
    /// As `Stream`, which may become part of a capture by that. Whoever allows it makes the captured stream wait for it in the end.
    StreamIntoCapture(Stream),
    /// The host, now.
    Host,
    /// What is queued later on any stream of a context. The host waits instead where that is not possible: with drivers before
    /// 12.5, and while a graph is captured elsewhere.
    Context(Context),
}

impl From<Option<Stream>> for Waiter {
    fn from(stream: Option<Stream>) -> Self {
        stream.map_or(Self::Nobody, Self::Stream)
    }
}

/// What is waited for: what there is of it now.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    Nothing,
    Stream(Stream),
    /// The work on memory at an address, on streams that nobody knows: what is behind the event of its block, if the uses are
    /// known, or else all work in its reach.
    Memory {
        address: usize,
        device: Device,
        known: Option<&'a Uses>,
    },
    /// All work that the release of memory waits for.
    All(Reach),
    /// Work of another process, behind which it writes a number.
    Number(SharedNumber),
}

impl From<Option<Stream>> for Work<'_> {
    fn from(stream: Option<Stream>) -> Self {
        stream.map_or(Self::Nothing, Self::Stream)
    }
}

/// Makes `waiter` wait for `work`. Returns whether streams that had to be ordered capture a graph, if that was asked.
///
/// # Errors
///
/// As [`stream_wait`] and [`stream_synchronize`].
pub(crate) fn order(waiter: Waiter, work: Work<'_>) -> Result<Option<bool>> {
    let reach = match work {
        Work::Nothing => return Ok(None),
        Work::Stream(from) => return after_stream(waiter, from),
        Work::Number(number) => return after_number(waiter, number).map(|()| None),
        Work::All(reach) => Some(reach),
        Work::Memory { known, .. } if known.is_some_and(|uses| after_block(waiter, uses).is_some()) => None,
        Work::Memory { address, device, .. } => memory_use(address, device)?.map(|found| found.reach),
    };
    match reach.filter(|_| !unordered().unknown_work) {
        Some(reach) => after_all(waiter, reach).map(|()| None),
        None => Ok(None),
    }
}

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
    order_streams(waiter, on, None, device).map(drop)
}

/// As [`stream_wait`]. Default streams are those of `context`, if it is known.
pub(crate) fn order_streams(
    waiter: StreamHandle,
    on: StreamHandle,
    context: Option<Context>,
    device: Device,
) -> Result<Option<bool>> {
    order(Stream::new(waiter, context, device).into(), Stream::new(on, context, device).into())
}

/// Waits on the host until the work that is on `stream` now is done, as a reader on the host needs it.
///
/// # Errors
///
/// As [`stream_wait`].
pub fn stream_synchronize(stream: StreamHandle, device: Device) -> Result<()> {
    order(Waiter::Host, Stream::new(stream, None, device).into()).map(drop)
}

fn after_stream(waiter: Waiter, from: Stream) -> Result<Option<bool>> {
    match waiter {
        Waiter::Nobody => Ok(None),
        Waiter::Stream(to) => between_streams(to, from, false),
        Waiter::StreamIntoCapture(to) => between_streams(to, from, true),
        Waiter::Host => host_after_stream(from).map(|()| None),
        Waiter::Context(to) => context_after_stream(to, from).map(|()| None),
    }
}

fn between_streams(to: Stream, from: Stream, is_fork: bool) -> Result<Option<bool>> {
    if to == from {
        return Ok(None);
    }
    let driver = driver()?;
    let is_any_default = to.is_default() || from.is_default();
    let current = if is_any_default { Context::current(driver)? } else { None };
    let mut is_capturing = None;
    for waiter in to.in_each_context(driver, current)? {
        // Two default streams that the same memory selects are in one context.
        for on in from
            .in_each_context(driver, current)?
            .filter(|on| !to.has_context_of(from) || waiter.has_context_of(*on))
        {
            if waiter != on {
                is_capturing = record_and_wait(driver, waiter, on, current, is_fork)?;
            }
        }
    }
    Ok(is_capturing)
}

/// Records an event on `from` and makes `to` wait for it. The context of a default stream is known, and so is the current one.
///
/// Three more calls check the streams. A wait into or out of a capture would invalidate the capture or be swallowed by
/// it, so both streams are asked whether they capture. For a stream that was destroyed, that query always ends the
/// process. One of two other calls comes before it: recording the event, or `cuStreamGetCtx`. For a destroyed stream
/// these were seen to return an error at times, and to end the process at others.
fn record_and_wait(
    driver: &'static Driver,
    to: Stream,
    from: Stream,
    current: Option<Context>,
    is_fork: bool,
) -> Result<Option<bool>> {
    let record = || {
        let event = Event::of_stream(driver, from.context_of_default(), from.raw());
        event.map_err(|failure| from.refusal(failure))
    };
    let _at_source = match from.enter_from(driver, current) {
        // The work is gone with its context.
        Err(failure) if failure.is_final() => return Ok(None),
        entered => entered?,
    };
    let current = from.context_of_default().or(current);
    let recorded = if from.is_default() { None } else { Some(record()?) };
    // While a blocking stream captures, recording an event on a default stream would invalidate the capture. So the
    // query comes first.
    let begun = from.capture(driver)?;
    to.own_context(driver)?;
    let joined = {
        let _at_target = to.enter_from(driver, current)?;
        to.capture(driver)?
    };
    let may_fork = is_fork && joined.is_none() && !to.is_default();
    if begun != joined && !may_fork {
        // Default streams of two contexts have one name, so work for the one would be queued on the other.
        let are_namesakes = to.is_default() && !to.has_context_of(from);
        if recorded.is_none() && begun.is_none() && !are_namesakes && is_idle(driver, from.raw()) {
            return Ok(Some(true));
        }
        let (who, other) = if begun.is_some() { (from, to) } else { (to, from) };
        let other = other.handle();
        let what = text!("a wait between this stream and the {other}, which is not part of the capture");
        return Err(capture_error(who.handle(), what));
    }
    let event = recorded.map_or_else(record, Ok)?;
    let _at_target = to.enter_from(driver, current)?;
    event.make_wait(to.raw()).map_err(|failure| to.refusal(failure))?;
    Ok(Some(joined.is_some()))
}

/// Returns whether no work is pending on a default stream of the current context. A capture then has nothing to wait
/// for.
fn is_idle(driver: &Driver, default_stream: CUstream) -> bool {
    let _relaxed = Relaxed::new(driver);
    // SAFETY: a default stream is always live.
    unsafe { driver.stream_query(default_stream) }.is_ok()
}

fn host_after_stream(from: Stream) -> Result<()> {
    record_stream(from, "a wait on the host", |event| make_host_wait(|| event.wait()))
}

/// Records an event behind the work on a stream, in each context that it means, and passes it on while that is current.
fn record_stream(from: Stream, what: &str, mut then: impl FnMut(Event<'static>) -> Outcome) -> Result<()> {
    let driver = driver()?;
    let current = Context::current(driver)?;
    for from in from.in_each_context(driver, current)? {
        let context = from.context(driver)?;
        let _entered = match context.enter_from(driver, current) {
            // The work is gone with its context.
            Err(failure) if failure.is_final() => continue,
            entered => entered?,
        };
        if from.capture(driver)?.is_some() {
            return Err(capture_error(from.handle(), what));
        }
        let _relaxed = Relaxed::new(driver);
        let event = Event::of_stream(driver, Some(context), from.raw());
        then(event.map_err(|failure| from.refusal(failure))?)?;
    }
    Ok(())
}

/// Records events behind work, for somebody who waits later.
///
/// # Errors
///
/// As [`order`].
pub(crate) fn record(work: Work<'_>) -> Result<Vec<Event<'static>>> {
    let mut events = Vec::new();
    let reach = match work {
        Work::Nothing | Work::Number(_) => None,
        Work::Stream(from) => {
            record_stream(from, "work for which another process waits", |event| {
                events.push(event);
                Ok(())
            })?;
            None
        }
        Work::All(reach) => Some(reach),
        Work::Memory { address, device, .. } => memory_use(address, device)?.map(|found| found.reach),
    };
    match reach.filter(|_| !unordered().unknown_work) {
        Some(reach) => record_contexts(driver()?, StreamHandle::LegacyDefault, reach),
        None => Ok(events),
    }
}

/// The host waits for a context, and where streams cannot wait for numbers.
fn after_number(waiter: Waiter, number: SharedNumber) -> Result<()> {
    let (Waiter::Stream(to) | Waiter::StreamIntoCapture(to)) = waiter else {
        if !matches!(waiter, Waiter::Nobody) {
            run_blocking(|| number.wait());
        }
        return Ok(());
    };
    let driver = driver()?;
    let current = Context::current(driver)?;
    for to in to.in_each_context(driver, current)? {
        let _entered = to.enter_from(driver, current)?;
        to.own_context(driver)?;
        if to.capture(driver)?.is_some() {
            // A replay of the graph would find the number of the first time.
            return Err(capture_error(to.handle(), "a wait for another process"));
        }
        let queued = number.make_wait(driver, to.raw());
        if !queued.map_err(|failure| to.refusal(failure))? {
            run_blocking(|| number.wait());
        }
    }
    Ok(())
}

fn make_host_wait(wait: impl FnOnce() -> Outcome) -> Outcome {
    let mut done = Ok(());
    run_blocking(|| done = wait());
    done
}

/// A stream that captures a graph itself needs no such wait, because the graph is ordered where it is launched.
fn context_after_stream(to: Context, from: Stream) -> Result<()> {
    let driver = driver()?;
    let own = from.context(driver)?;
    let event = {
        let _entered = own.enter(driver)?;
        if from.capture(driver)?.is_some() {
            return Ok(());
        }
        Event::of_stream(driver, Some(own), from.raw())
    };
    match event.and_then(|event| make_context_wait(driver, to, &event)) {
        Ok(()) => Ok(()),
        Err(_) => host_after_stream(from),
    }
}

/// Fails with drivers before 12.5, and while a graph is captured elsewhere.
fn make_context_wait(driver: &Driver, to: Context, event: &Event<'_>) -> Outcome {
    const CAPTURED: DriverError = DriverError { symbol: "cuCtxWaitEvent", code: code::CAPTURE_IMPLICIT };
    let _entered = to.enter(driver)?;
    let wait = || {
        capture_of(driver, LEGACY)?;
        // SAFETY: the event and the context come from the driver, which allows an event of another context.
        unsafe { driver.context_wait(to.to_raw().get(), event.raw()) }
    };
    unless_captured(Reach::of_context(to), || Some(wait())).unwrap_or(Err(CAPTURED))
}

/// Waits for the event behind the known work on a block, and for nothing else. `None` if that is not possible.
fn after_block(waiter: Waiter, uses: &Uses) -> Option<()> {
    let driver = driver().ok()?;
    match waiter {
        Waiter::Nobody => Some(()),
        Waiter::Stream(to) | Waiter::StreamIntoCapture(to) => {
            let to = to.with_context(driver).ok()?;
            let _entered = to.enter(driver).ok()?;
            if capture_of(driver, to.raw()) != Ok(None) {
                return None;
            }
            uses.with_last(|last| last.make_wait(to.raw()))
        }
        Waiter::Host => {
            let _relaxed = Relaxed::new(driver);
            uses.with_last_unlocked(|last| make_host_wait(|| last.in_context(|| last.wait())))
        }
        Waiter::Context(to) => uses.with_last(|last| make_context_wait(driver, to, last)),
    }
}

/// Waits for all work of the contexts of a reach.
fn after_all(waiter: Waiter, reach: Reach) -> Result<()> {
    let driver = driver()?;
    let make_host_wait = |events: &[Event<'_>]| {
        let _relaxed = Relaxed::new(driver);
        make_host_wait(|| events.iter().try_for_each(|event| event.in_context(|| event.wait())))
    };
    match waiter {
        Waiter::Nobody => Ok(()),
        Waiter::Stream(to) | Waiter::StreamIntoCapture(to) => {
            let current = if to.is_default() { Context::current(driver)? } else { None };
            to.in_each_context(driver, current)?
                .try_for_each(|to| stream_after_all(driver, to, current, reach))
        }
        Waiter::Host => Ok(make_host_wait(&record_contexts(driver, StreamHandle::LegacyDefault, reach)?)?),
        Waiter::Context(to) => {
            let events = record_contexts(driver, StreamHandle::LegacyDefault, reach)?;
            let queued = events.iter().try_for_each(|event| make_context_wait(driver, to, event));
            Ok(queued.or_else(|_| make_host_wait(&events))?)
        }
    }
}

fn stream_after_all(
    driver: &'static Driver,
    to: Stream,
    current: Option<Context>,
    reach: Reach,
) -> Result<()> {
    let _entered = to.enter_from(driver, current)?;
    to.own_context(driver)?;
    if to.capture(driver)?.is_some() {
        let what = "a wait for all other work, which is not part of the capture";
        return Err(capture_error(to.handle(), what));
    }
    let events = record_contexts(driver, to.handle(), reach)?;
    let queued = events.iter().try_for_each(|event| event.make_wait(to.raw()));
    queued.map_err(|failure| to.refusal(failure))
}

/// Waits on the host for a stream on which this crate has queued its own work.
pub(crate) fn finish_stream(driver: &Driver, stream: CUstream) -> Outcome {
    // SAFETY: the stream is live, as whoever has queued the work knows.
    unsafe { driver.stream_synchronize(stream) }
}

/// Queues work on a stream of this crate in the current context, on which nothing waits for work of others, and waits for
/// it.
pub(crate) fn queue_and_finish<R>(
    driver: &Driver,
    work: impl FnOnce(LocatedStream) -> Outcome<R>,
) -> Outcome<R> {
    const NO_CONTEXT: DriverError = DriverError { symbol: "cuCtxGetCurrent", code: code::INVALID_CONTEXT };
    let context = Context::current(driver)?.ok_or(NO_CONTEXT)?;
    let raw = OwnStream::spare(context).raw(driver)?;
    let queued = work(LocatedStream { context, raw });
    // After a failure too, because a part may be queued.
    let done = finish_stream(driver, raw);
    queued.and_then(|result| done.map(|()| result))
}

/// Records an event after all work of each context of a reach, for a wait of `to`.
///
/// # Errors
///
/// [`ErrorKind::StreamCapture`](crate::ErrorKind::StreamCapture) if releases are held, or a library that can be asked
/// captures a graph: the event would invalidate the capture.
fn record_contexts(driver: &'static Driver, to: StreamHandle, reach: Reach) -> Result<Vec<Event<'static>>> {
    // The stream of the consumer may be another one than `to`.
    let consumer = THREAD.with(|thread| thread.consumer.get()).filter(|consumer| *consumer != to);
    if let Some(consumer) = consumer.and_then(|consumer| Stream::new(consumer, None, Device::UNKNOWN)) {
        consumer.own_context(driver)?;
        if consumer.capture(driver)?.is_some() {
            return Err(capture_error(consumer.handle(), "a wait for all work of a context"));
        }
    }
    let contexts = reach.all(driver)?;
    let record = || contexts.filter_map(|context| record_context(driver, to, context).transpose()).collect();
    unless_captured(reach, || Some(record()))
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
