//! Streams: what the driver knows of one, and the streams of this crate.
//!
//! Those of this crate are non-blocking, several for each context. They live as long as their context.

use core::fmt;
use core::num::NonZeroUsize;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{
    Context, Entered, KnownContext, PerContext, Relaxed, context_for, contexts_in_use, has_default_streams,
    used_for,
};
use crate::driver::functions::{CUstream, Driver, DriverError, Outcome, code, driver, to_usize};
use crate::driver::pointer::allocation_id;
use crate::error::{Error, ErrorKind, Result, text};
use crate::process::fork::this_thread;

/// Returns whether a stream that synchronizes with the legacy default stream of the current context captures a graph.
/// Using the legacy default stream would invalidate that capture. Returns false without a driver.
#[cfg(feature = "cudarc")]
pub(crate) fn legacy_stream_joins_capture() -> bool {
    driver().is_ok_and(|driver| capture_of(driver, LEGACY).is_err_and(DriverError::is_about_capture))
}

/// Returns whether a live stream captures a graph. The legacy default stream cannot.
pub(crate) fn is_capturing(stream: StreamHandle) -> bool {
    let raw = stream.to_raw().filter(|raw| *raw != LEGACY);
    let (Some(raw), Ok(driver)) = (raw, driver()) else { return false };
    capture_of(driver, raw).is_ok_and(|capture| capture.is_some())
}

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: CUstream = 1;

/// A stream. The default streams of two contexts differ, although they have one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// That of the handle, which is not `NothingPending`. A description with a stream is smaller with it.
    number: NonZeroUsize,
    context: ContextOfStream,
}

/// The context of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContextOfStream {
    /// The driver knows it by the handle.
    OfHandle,
    /// That of a default stream.
    Known(Context),
    /// That of a default stream: the one in which memory of a device is used on this thread.
    OfDevice(Device),
    /// The default streams of every primary context in use, for memory of no device that was named while no context was current.
    Every,
}

/// What tells a stream from all others of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct StreamId {
    pub(crate) handle: usize,
    /// The context of a default stream, or 0.
    pub(crate) context: usize,
}

impl StreamId {
    /// The host, and a stream that cannot be told from others.
    pub(crate) const NONE: Self = Self { handle: 0, context: 0 };
}

/// A stream, and its context.
#[derive(Clone, Copy)]
pub(crate) struct LocatedStream {
    pub(crate) context: Context,
    pub(crate) raw: CUstream,
}

impl Stream {
    /// The stream that a handle means. A default stream is that of `context`, or else of the context in which memory of
    /// `device` is used. `None` for `NothingPending`.
    pub(crate) fn new(handle: StreamHandle, context: Option<Context>, device: Device) -> Option<Self> {
        let context = match (handle, context) {
            (StreamHandle::NothingPending, _) => return None,
            (StreamHandle::Raw(_), _) => ContextOfStream::OfHandle,
            (_, Some(context)) => ContextOfStream::Known(context),
            (_, None) => ContextOfStream::OfDevice(device),
        };
        handle.number().map(|number| Self { number, context })
    }

    /// The stream that a handle means here and now, whatever context is current later: what comes into this crate is named by it. A
    /// default stream is that of the context in which memory of `device` is used. `None` for `NothingPending`.
    #[inline]
    pub(crate) fn named(handle: StreamHandle, device: Device) -> Option<Self> {
        Self::anywhere(handle).map(|stream| stream.located(device))
    }

    /// The stream that a handle means where it is used: a default stream is that of the context in which the memory is used
    /// then. `None` for `NothingPending`.
    #[inline]
    pub(crate) const fn anywhere(handle: StreamHandle) -> Option<Self> {
        let context = match handle {
            StreamHandle::NothingPending => return None,
            StreamHandle::Raw(_) => ContextOfStream::OfHandle,
            StreamHandle::LegacyDefault | StreamHandle::PerThreadDefault => {
                ContextOfStream::OfDevice(Device::UNKNOWN)
            }
        };
        match handle.number() {
            Some(number) => Some(Self { number, context }),
            None => None,
        }
    }

    /// As [`anywhere`](Self::anywhere). A default stream is that of this context, if it is known.
    #[inline]
    pub(crate) fn in_context_of(handle: StreamHandle, context: Option<Context>) -> Option<Self> {
        Self::new(handle, context, Device::UNKNOWN)
    }

    /// What tells the stream from all others of the process. None for a default stream of a context that is not known yet.
    pub(crate) fn id(self) -> StreamId {
        match self.context {
            ContextOfStream::OfHandle => StreamId { handle: self.raw(), context: 0 },
            ContextOfStream::Known(context) => {
                StreamId { handle: key_of(self.handle()), context: context.to_raw().get() }
            }
            ContextOfStream::OfDevice(_) | ContextOfStream::Every => StreamId::NONE,
        }
    }

    /// The legacy default stream of a context.
    pub(crate) fn legacy(context: Option<Context>, device: Device) -> Self {
        let context = context.map_or(ContextOfStream::OfDevice(device), ContextOfStream::Known);
        Self { number: NonZeroUsize::MIN, context }
    }

    #[inline]
    pub(crate) const fn handle(self) -> StreamHandle {
        StreamHandle::of_number(self.number)
    }

    #[inline]
    pub(crate) const fn raw(self) -> CUstream {
        self.number.get()
    }

    pub(crate) fn is_default(self) -> bool {
        self.context != ContextOfStream::OfHandle
    }

    /// The same stream. Memory of `device` selects the context of a default stream, if it is not known.
    pub(crate) fn for_device(self, device: Device) -> Self {
        match self.context {
            ContextOfStream::OfDevice(_) => Self { context: ContextOfStream::OfDevice(device), ..self },
            _ => self,
        }
    }

    /// Whether the two are default streams of the contexts that one device selects.
    pub(crate) fn has_context_of(self, other: Self) -> bool {
        self.is_default() && self.context == other.context
    }

    /// The context of a default stream, if it is known.
    pub(crate) fn context_of_default(self) -> Option<Context> {
        if let ContextOfStream::Known(context) = self.context { Some(context) } else { None }
    }

    /// Returns the context of a stream that is given by its handle, or `None` for a default stream.
    ///
    /// This must be the first query about a stream: for a stream that was destroyed it returns an error, while every other
    /// query would end the process.
    pub(crate) fn own_context(self, driver: &Driver) -> Result<Option<Context>> {
        if self.is_default() {
            return Ok(None);
        }
        context_of(driver, self.raw()).map_err(|failure| self.refusal(failure))
    }

    /// Returns the context of the stream.
    pub(crate) fn context(self, driver: &Driver) -> Result<Context> {
        match self.context {
            ContextOfStream::OfHandle => match self.own_context(driver)? {
                Some(own) => Ok(own),
                None => context_for(driver, Device::UNKNOWN),
            },
            ContextOfStream::Known(context) => Ok(context),
            ContextOfStream::OfDevice(device) => context_for(driver, device),
            ContextOfStream::Every => Ok(contexts_in_use(driver)?[0]),
        }
    }

    /// Returns the stream and its context.
    pub(crate) fn in_context(self, driver: &Driver) -> Result<LocatedStream> {
        Ok(LocatedStream { context: self.context(driver)?, raw: self.raw() })
    }

    /// The stream, with the context of a default stream.
    pub(crate) fn with_context(self, driver: &Driver) -> Result<Self> {
        match self.context {
            ContextOfStream::OfDevice(_) | ContextOfStream::Every => {
                Ok(Self { context: ContextOfStream::Known(self.context(driver)?), ..self })
            }
            _ => Ok(self),
        }
    }

    /// The stream that is meant now, whatever context is current later. Memory of `device` selects the context of a default stream, if it
    /// is not known. Without a driver no work is pending on any stream.
    #[inline]
    pub(crate) fn located(self, device: Device) -> Self {
        if self.is_open() && device != Device::CPU { self.locate(device) } else { self }
    }

    /// Whether the context that is current will say which default stream this is.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        matches!(self.context, ContextOfStream::OfDevice(_))
    }

    #[cold]
    fn locate(self, device: Device) -> Self {
        let found = driver().and_then(|driver| used_for(driver, Context::current(driver)?, device));
        let context = match found {
            Ok(Some(context)) => ContextOfStream::Known(context),
            Ok(None) => ContextOfStream::Every,
            Err(_) => ContextOfStream::OfDevice(device),
        };
        Self { context, ..self }
    }

    /// As [`with_context`](Self::with_context), while a context is current. Pinned and managed memory belongs to no device: if no context is
    /// current, the default streams of every primary context in use are meant.
    pub(crate) fn in_each_context(
        self,
        driver: &Driver,
        current: Option<Context>,
    ) -> Result<impl Iterator<Item = Self> + use<>> {
        let (one, more) = match self.context {
            ContextOfStream::OfDevice(device) => match used_for(driver, current, device)? {
                Some(context) => {
                    (Some(Self { context: ContextOfStream::Known(context), ..self }), Vec::new())
                }
                None => (None, contexts_in_use(driver)?),
            },
            ContextOfStream::Every => (None, contexts_in_use(driver)?),
            _ => (Some(self), Vec::new()),
        };
        let of = move |context| Self { context: ContextOfStream::Known(context), ..self };
        Ok(one.into_iter().chain(more.into_iter().map(of)))
    }

    /// Makes the context of a default stream current, if it is known. The driver knows that of any other stream.
    pub(crate) fn enter(self, driver: &Driver) -> Outcome<Option<Entered<'_>>> {
        self.context_of_default().map(|context| context.enter(driver)).transpose()
    }

    /// As [`enter`](Self::enter), with the context that is current.
    pub(crate) fn enter_from(
        self,
        driver: &Driver,
        current: Option<Context>,
    ) -> Outcome<Option<Entered<'_>>> {
        self.context_of_default().map(|context| context.enter_from(driver, current)).transpose()
    }

    /// Returns the id of the capture that the stream is part of. The context of a default stream is current.
    pub(crate) fn capture(self, driver: &Driver) -> Result<Option<u64>> {
        capture_of(driver, self.raw()).map_err(|failure| match failure.code {
            code::CAPTURE_IMPLICIT => {
                capture_error(self.handle(), "work on a stream that synchronizes with a capturing stream")
            }
            _ => self.refusal(failure),
        })
    }

    /// The error for a stream that the driver rejects.
    pub(crate) fn refusal(self, failure: DriverError) -> Error {
        dead_stream(failure, self.handle())
    }

    /// Returns the handle that means the stream on this thread, for memory of `device`. `None` if no handle does. Nothing is
    /// pending in a context that is gone.
    pub(crate) fn handle_here(self, device: Device) -> Option<StreamHandle> {
        match self.context {
            ContextOfStream::Known(context) if !means_default_streams_of(context, device) => {
                is_gone(context).then_some(StreamHandle::NothingPending)
            }
            ContextOfStream::Every if is_any_current() => None,
            _ => Some(self.handle()),
        }
    }

    /// Returns the device of a stream that is given by its handle. `None` for a default stream, and without a driver.
    pub(crate) fn device(self) -> Result<Option<Device>> {
        let Ok(driver) = driver() else { return Ok(None) };
        let Some(context) = self.own_context(driver)? else { return Ok(None) };
        let ordinal = context.primary_ordinal().map_or_else(
            || {
                let _entered = context.enter(driver)?;
                Context::current_ordinal(driver)
            },
            Ok,
        );
        Ok(Some(Device::cuda(ordinal?)))
    }
}

#[cold]
fn is_any_current() -> bool {
    driver().is_ok_and(|driver| Context::current(driver) != Ok(None))
}

#[cold]
fn is_gone(context: Context) -> bool {
    driver().is_ok_and(|driver| context.enter(driver).is_err_and(DriverError::is_final))
}

/// Returns whether the handles of the default streams mean those of `context` on this thread, for memory of `device`.
fn means_default_streams_of(context: Context, device: Device) -> bool {
    let is_current = || driver().is_ok_and(|driver| Context::current(driver) == Ok(Some(context)));
    has_default_streams(context, device) || is_current()
}

/// Returns whether a stream belongs to a context. A default stream can be that of any context.
///
/// # Errors
///
/// [`ErrorKind::Driver`] for a stream that was destroyed.
#[cfg(any(feature = "python", feature = "cuda-core"))]
pub(crate) fn is_stream_of(handle: StreamHandle, context: Option<Context>) -> Result<bool> {
    let Some(context) = context.filter(|_| matches!(handle, StreamHandle::Raw(_))) else { return Ok(true) };
    let Some(stream) = Stream::anywhere(handle) else { return Ok(true) };
    Ok(stream.own_context(driver()?)? == Some(context))
}

/// Returns the context of a stream. Fails for a stream that was destroyed.
pub(crate) fn context_of(driver: &Driver, stream: CUstream) -> Outcome<Option<Context>> {
    let mut context = 0;
    // SAFETY: the handle is or was a stream, as required of every `StreamHandle`; `context` is valid for a write.
    unsafe { driver.stream_context(stream, &raw mut context) }?;
    Ok(Context::from_driver(context))
}

/// Returns the id of the capture that a stream is part of.
pub(crate) fn capture_of(driver: &Driver, stream: CUstream) -> Outcome<Option<u64>> {
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
pub(crate) fn dead_stream(failure: DriverError, stream: StreamHandle) -> Error {
    failure.expecting(format_args!("a live stream of this process, not the {stream}"))
}

#[cold]
pub(crate) fn capture_error(stream: StreamHandle, what: impl fmt::Display) -> Error {
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
const INTERFACE: usize = usize::MAX;

/// The keys of the streams that write and await numbers of other processes: they wait for one another in no circle, because each
/// waits for work that was queued before.
pub(crate) const READY: usize = usize::MAX - 1;
pub(crate) const DONE: usize = usize::MAX - 2;
pub(crate) const AWAIT: usize = usize::MAX - 3;

/// The keys that are no numbers of streams.
const OWN_KEYS: [usize; 5] = [SPARE, INTERFACE, READY, DONE, AWAIT];

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

/// Which stream of this crate: the one for a key, in a context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnStream {
    pub(crate) context: Context,
    pub(crate) key: usize,
}

/// The handle of a stream of this crate. Its key is the spare one if it was taken in place of another.
#[derive(Clone, Copy)]
pub(crate) struct OwnHandle {
    pub(crate) key: usize,
    pub(crate) raw: CUstream,
}

/// The streams of one context.
struct Streams {
    streams: Vec<(OwnHandle, InUse)>,
    sentinel: Sentinel,
}

/// Whoever uses a stream has a clone. Calls of the driver may take long, so they are made without the lock of the streams.
type InUse = Arc<()>;

/// A small allocation. A reset of the primary context, which keeps its handle, frees it and destroys the streams. To use one
/// of them then could end the process.
struct Sentinel {
    address: usize,
    /// The driver's identifier of the allocation.
    id: usize,
}

impl Streams {
    /// Makes the first of them, when one is needed, in the current context.
    fn new(driver: &Driver) -> Outcome<Self> {
        let mut address = 0;
        // An allocation would end a capture of this thread, or a global one.
        let _relaxed = Relaxed::new(driver);
        // SAFETY: `address` is valid for a write. A context is current.
        unsafe { driver.memory_alloc(&raw mut address, 1) }?;
        let address = to_usize(address);
        Ok(Self { streams: Vec::new(), sentinel: Sentinel { address, id: allocation_id(driver, address)? } })
    }

    fn with_key(&self, key: usize) -> Option<(OwnHandle, InUse)> {
        self.streams.iter().find(|(stream, _)| stream.key == key).cloned()
    }

    fn get(&mut self, driver: &Driver, known: &mut KnownContext, key: usize) -> Outcome<(OwnHandle, InUse)> {
        if allocation_id(driver, self.sentinel.address)? != self.sentinel.id {
            known.context.note_reset();
            (*known, *self) = (KnownContext::new(driver, known.context)?, Self::new(driver)?);
        }
        if let Some(stream) = self.with_key(key) {
            return Ok(stream);
        }
        let is_full = self.streams.len() >= MOST && !OWN_KEYS.contains(&key);
        let idle = if is_full { self.take_idle(driver) } else { None };
        let stream = match idle {
            Some(raw) => OwnHandle { key, raw },
            None if is_full => match self.with_key(SPARE) {
                Some(spare) => return Ok(spare),
                None => OwnHandle { key: SPARE, raw: create(driver)? },
            },
            None => OwnHandle { key, raw: create(driver)? },
        };
        let in_use = InUse::default();
        self.streams.push((stream, Arc::clone(&in_use)));
        Ok((stream, in_use))
    }

    /// Takes the stream of another key that has nothing to do: the one that got its key first. Nobody uses it now.
    fn take_idle(&mut self, driver: &Driver) -> Option<CUstream> {
        let is_idle = |(stream, in_use): &(OwnHandle, InUse)| {
            let is_free = !OWN_KEYS.contains(&stream.key) && Arc::strong_count(in_use) == 1;
            // SAFETY: the streams are there, as the caller has found out.
            is_free && unsafe { driver.stream_query(stream.raw) }.is_ok()
        };
        let at = self.streams.iter().position(is_idle)?;
        Some(self.streams.remove(at).0.raw)
    }
}

/// The streams of each context.
static STREAMS: PerContext<Streams> = PerContext::new();

impl OwnStream {
    /// The stream on which nothing ever waits for work of others.
    pub(crate) fn spare(context: Context) -> Self {
        Self { context, key: SPARE }
    }

    /// Calls `work` with the stream. No other consumer gets it meanwhile. The context is current.
    pub(crate) fn with<R>(self, driver: &Driver, work: impl FnOnce(OwnHandle) -> R) -> Outcome<R> {
        let get = |known: &mut KnownContext, streams: &mut Streams| streams.get(driver, known, self.key);
        let (stream, _in_use) = STREAMS.with(driver, self.context, || Streams::new(driver), get)??;
        Ok(work(stream))
    }

    /// Returns the handle of the stream.
    pub(crate) fn raw(self, driver: &Driver) -> Outcome<CUstream> {
        self.with(driver, |stream| stream.raw)
    }

    /// Returns the handle for others. The context is current.
    pub(crate) fn handle(self, driver: &Driver) -> Outcome<StreamHandle> {
        let stream = self.raw(driver)?;
        // SAFETY: the stream is never destroyed, except with its context, which `PerContext` finds out.
        Ok(unsafe { StreamHandle::from_raw(stream) })
    }
}

/// Returns the stream of a context that interface dicts name for unknown work. The context is current.
pub(crate) fn interface_stream(driver: &Driver, context: Context) -> Outcome<StreamHandle> {
    OwnStream { context, key: INTERFACE }.handle(driver)
}

fn create(driver: &Driver) -> Outcome<CUstream> {
    const NON_BLOCKING: u32 = 1;
    let mut stream = 0;
    let _relaxed = Relaxed::new(driver);
    // SAFETY: `stream` is valid for a write.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    Ok(stream)
}
