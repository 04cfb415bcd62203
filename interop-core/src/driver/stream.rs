//! Streams: what the driver knows of one, and the streams of this crate.
//!
//! Those of this crate are non-blocking, several for each context. They live as long as their context.

use crate::driver::context::{Context, KnownContext, PerContext};
use crate::driver::functions::{Driver, Failure, Outcome, RawStream, code, driver, to_usize};
use crate::driver::pointer::allocation_id;
use crate::driver::stream_handle::StreamHandle;
use crate::error::{Error, ErrorKind, Result, text};
use crate::process::fork::this_thread;

/// Returns whether a stream that synchronizes with the legacy default stream of the current context captures a graph.
/// Using the legacy default stream would invalidate that capture. Returns false without a driver.
#[cfg(feature = "cudarc")]
pub(crate) fn legacy_stream_captures() -> bool {
    driver().is_ok_and(|driver| capture_of(driver, LEGACY).is_err_and(Failure::is_about_capture))
}

/// Returns whether a live stream captures a graph. The legacy default stream cannot.
pub(crate) fn captures(stream: StreamHandle) -> bool {
    let raw = stream.to_raw().filter(|raw| *raw != LEGACY);
    let (Some(raw), Ok(driver)) = (raw, driver()) else { return false };
    capture_of(driver, raw).is_ok_and(|capture| capture.is_some())
}

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: RawStream = 1;

/// Returns the context of a stream that is given by its handle, or `None` for a default stream.
///
/// This must be the first query about a stream: for a stream that was destroyed it returns an error, while every other
/// query would end the process.
pub(crate) fn context_of_live(
    driver: &Driver,
    handle: StreamHandle,
    raw: RawStream,
) -> Result<Option<Context>> {
    match handle {
        StreamHandle::Raw(_) => context_of(driver, raw).map_err(|failure| dead_stream(failure, handle)),
        _ => Ok(None),
    }
}

/// Returns whether a stream belongs to a context. A default stream can be that of any context.
///
/// # Errors
///
/// [`ErrorKind::Driver`] for a stream that was destroyed.
#[cfg(any(feature = "python", feature = "cuda-core"))]
pub(crate) fn is_stream_of(handle: StreamHandle, context: Option<Context>) -> Result<bool> {
    let (StreamHandle::Raw(raw), Some(context)) = (handle, context) else { return Ok(true) };
    Ok(context_of_live(driver()?, handle, raw.get())? == Some(context))
}

/// Returns the context of a stream. Fails for a stream that was destroyed.
pub(crate) fn context_of(driver: &Driver, stream: RawStream) -> Outcome<Option<Context>> {
    let mut context = 0;
    // SAFETY: the handle is or was a stream, as required of every `StreamHandle`; `context` is valid for a write.
    unsafe { driver.stream_context(stream, &raw mut context) }?;
    Ok(Context::from_driver(context))
}

/// As [`capture_of`], with the error that a user sees.
pub(crate) fn capture(driver: &Driver, handle: StreamHandle, raw: RawStream) -> Result<Option<u64>> {
    capture_of(driver, raw).map_err(|failure| match failure.code {
        code::CAPTURE_IMPLICIT => {
            capture_error(handle, "work on a stream that synchronizes with a capturing stream")
        }
        _ => dead_stream(failure, handle),
    })
}

/// Returns the id of the capture that a stream is part of.
pub(crate) fn capture_of(driver: &Driver, stream: RawStream) -> Outcome<Option<u64>> {
    let mut status = 0;
    // SAFETY: the driver knows the stream's context, or it is a default stream; `status` is valid for a write.
    unsafe { driver.stream_is_capturing(stream, &raw mut status) }?;
    if status == 0 {
        return Ok(None);
    }
    let (mut id, null) = (0, core::ptr::null_mut());
    // SAFETY: as above; `id` is valid for a write, and null stands for what is not requested.
    unsafe { driver.stream_capture(stream, &raw mut status, &raw mut id, null, null, null) }?;
    Ok(Some(id))
}

/// Returns the error for a stream that the driver rejects.
pub(crate) fn dead_stream(failure: Failure, stream: StreamHandle) -> Error {
    failure.expecting(format_args!("a live stream of this process, not the {stream}"))
}

#[cold]
pub(crate) fn capture_error(stream: StreamHandle, what: impl core::fmt::Display) -> Error {
    let found = text!("{what} ({stream}), while a graph is captured");
    let allowed = "work on the captured stream alone, and no wait for other work";
    Error::new(ErrorKind::StreamCapture, "stream", found, allowed)
        .with_python_hint(
            "make this call before the capture, or with arrays that the captured stream alone uses",
        )
        .with_rust_hint("do this before the capture, or use the array on the captured stream alone")
}

/// The key of the stream that belongs to no consumer. Nothing on it ever waits for work of others.
pub(crate) const SPARE: usize = 0;

/// The key of the stream that interface dicts name for unknown work.
const HANDOVER: usize = usize::MAX;

/// The keys that are no numbers of streams.
const OWN_KEYS: [usize; 2] = [SPARE, HANDOVER];

/// The number of streams in one context. A further key gets a stream that has nothing to do, or else the spare one.
const MOST: usize = 16;

/// Returns the key of the stream that belongs to a consumer's stream. It is the number of that stream, and is never used
/// as a handle. The default streams of threads differ.
pub(crate) fn key_of(consumer: StreamHandle) -> usize {
    match consumer {
        StreamHandle::PerThreadDefault => this_thread() | 1,
        stream => stream.to_raw().unwrap_or(SPARE),
    }
}

/// The streams of one context, by their keys.
struct Streams {
    known: Vec<(usize, RawStream)>,
    /// The address and the driver's identifier of a small allocation. A reset of the primary context, which keeps its handle,
    /// frees it and destroys the streams. To use one of them then could end the process.
    sentinel: (usize, usize),
}

impl Streams {
    /// Makes the first of them, when one is needed, in the current context.
    fn new(driver: &Driver) -> Outcome<Self> {
        let mut address = 0;
        // SAFETY: `address` is valid for a write. A context is current.
        unsafe { driver.memory_alloc(&raw mut address, 1) }?;
        let address = to_usize(address);
        Ok(Self { known: Vec::new(), sentinel: (address, allocation_id(driver, address)?) })
    }

    fn find(&self, key: usize) -> Option<(RawStream, usize)> {
        self.known.iter().find(|(of, _)| *of == key).map(|(of, stream)| (*stream, *of))
    }

    fn of(&mut self, driver: &Driver, home: &mut KnownContext, key: usize) -> Outcome<(RawStream, usize)> {
        if allocation_id(driver, self.sentinel.0)? != self.sentinel.1 {
            home.context.note_reset();
            (*home, *self) = (KnownContext::new(driver, home.context)?, Self::new(driver)?);
        }
        if let Some(known) = self.find(key) {
            return Ok(known);
        }
        let is_full = self.known.len() >= MOST && !OWN_KEYS.contains(&key);
        let idle = if is_full { self.take_idle(driver) } else { None };
        let (key, stream) = match idle {
            Some(idle) => (key, idle),
            None if is_full => match self.find(SPARE) {
                Some(spare) => return Ok(spare),
                None => (SPARE, create(driver)?),
            },
            None => (key, create(driver)?),
        };
        self.known.push((key, stream));
        Ok((stream, key))
    }

    /// Takes the stream of another key that has nothing to do: the one that got its key first.
    fn take_idle(&mut self, driver: &Driver) -> Option<RawStream> {
        let has_ended = |(key, stream): &(usize, RawStream)| {
            // SAFETY: the streams are there, as the caller has found out.
            !OWN_KEYS.contains(key) && unsafe { driver.stream_query(*stream) }.is_ok()
        };
        let at = self.known.iter().position(has_ended)?;
        Some(self.known.remove(at).1)
    }
}

/// The streams of each context.
static STREAMS: PerContext<Streams> = PerContext::new();

/// Calls `work` with the stream of a context for this key, and the key. No other consumer gets the stream meanwhile. The
/// context is current.
pub(crate) fn with_own_stream<R>(
    driver: &Driver,
    context: Context,
    key: usize,
    work: impl FnOnce(RawStream, usize) -> R,
) -> Outcome<R> {
    let found = |home: &mut KnownContext, streams: &mut Streams| {
        streams.of(driver, home, key).map(|(stream, key)| work(stream, key))
    };
    STREAMS.with(driver, context, || Streams::new(driver), found)?
}

/// Returns the stream of a context that interface dicts name for unknown work. The context is current.
pub(crate) fn handover(driver: &Driver, context: Context) -> Outcome<StreamHandle> {
    // SAFETY: the stream is never destroyed, except with its context, which `PerContext` finds out.
    with_own_stream(driver, context, HANDOVER, |stream, _| unsafe { StreamHandle::from_raw(stream) })
}

fn create(driver: &Driver) -> Outcome<RawStream> {
    const NON_BLOCKING: u32 = 1;
    let mut stream = 0;
    // SAFETY: `stream` is valid for a write.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    Ok(stream)
}
