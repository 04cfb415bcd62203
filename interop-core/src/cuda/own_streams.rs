//! Streams of this crate: non-blocking, several for each context. They live as long as their context.

use crate::array::stream::StreamHandle;
use crate::cuda::context::{Context, PerContext};
use crate::cuda::driver::{Driver, Outcome, RawStream, to_usize};
use crate::cuda::pointer::allocation_id;
use crate::process::fork::this_thread;

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

    fn of(&mut self, driver: &Driver, context: Context, key: usize) -> Outcome<(RawStream, usize)> {
        if allocation_id(driver, self.sentinel.0)? != self.sentinel.1 {
            context.note_reset();
            *self = Self::new(driver)?;
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
    let found =
        |streams: &mut Streams| streams.of(driver, context, key).map(|(stream, key)| work(stream, key));
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
