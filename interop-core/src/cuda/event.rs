//! Events: a pool for each context, because making one costs as much as recording and waiting.

use core::cell::Cell;
use std::sync::{Mutex, PoisonError};

use super::context::Context;
use super::driver::{Driver, Failure, Outcome, RawEvent, RawStream, code};
use super::order::context_of;

const DISABLE_TIMING: u32 = 2;

/// The events that are free, by context.
static POOL: Mutex<Vec<(Context, Vec<RawEvent>)>> = Mutex::new(Vec::new());

/// The event that a thread used last: nearly always the one that it needs next.
struct Last(Cell<Option<(Context, RawEvent)>>);

thread_local! {
    static LAST: Last = const { Last(Cell::new(None)) };
}

fn last() -> Option<(Context, RawEvent)> {
    LAST.try_with(|last| last.0.get()).ok().flatten()
}

impl Drop for Last {
    fn drop(&mut self) {
        // Programs start threads for ever, each of which would take an event with it.
        if let Some((context, raw)) = self.0.take() {
            into_pool(context, raw);
        }
    }
}

fn into_pool(context: Context, raw: RawEvent) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match pool.iter_mut().find(|(of, _)| *of == context) {
        Some((_, free)) => free.push(raw),
        None => pool.push((context, vec![raw])),
    }
}

/// The events that are kept for the next edges, as the driver's handles: those that no thread has, and this thread's own.
/// Every other live event is in use or lost, which is what leak tests want to know.
#[cfg(feature = "counters")]
#[must_use]
pub fn kept_events() -> Vec<RawEvent> {
    let pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let free = pool.iter().flat_map(|(_, free)| free);
    free.copied().chain(last().map(|(_, own)| own)).collect()
}

/// An event without timing, back in the pool when it is dropped.
///
/// It may go back as soon as a wait for it is queued: a wait is for the last record before it.
pub(super) struct Event<'d> {
    driver: &'d Driver,
    context: Context,
    raw: RawEvent,
}

impl<'d> Event<'d> {
    /// An event recorded after the work of a stream so far. A stream without a context to look for it is taken to be of the
    /// context that the thread's last event was of; the driver says if it is not.
    pub(super) fn of_stream(
        driver: &'d Driver,
        context: Option<Context>,
        stream: RawStream,
    ) -> Outcome<Self> {
        // SAFETY: an event of the driver's; the stream is live, as everybody promises who names one (`StreamHandle`).
        let record = |event: &Self| unsafe { driver.event_record(event.raw, stream) };
        if let Some(context) = context {
            return Self::recorded(driver, context, record);
        }
        if let Some((likely, _)) = last() {
            let event = Self::take(driver, likely)?;
            match record(&event) {
                Ok(()) => return Ok(event),
                // Of another context after all, or destroyed, which the question for the context finds out.
                Err(failure) if failure.is_about_handles() => {}
                Err(failure) => return Err(failure),
            }
        }
        let own = context_of(driver, stream)?;
        let own = own.ok_or(Failure { symbol: "cuStreamGetCtx", code: code::INVALID_HANDLE })?;
        Self::recorded(driver, own, record)
    }

    /// An event recorded after all work of a context so far, whatever the stream.
    pub(super) fn of_context(driver: &'d Driver, context: Context) -> Outcome<Self> {
        // SAFETY: an event of the context, and a context of the driver's.
        Self::recorded(driver, context, |event| unsafe {
            driver.context_record(context.to_raw().get(), event.raw)
        })
    }

    fn recorded(driver: &'d Driver, context: Context, record: impl Fn(&Self) -> Outcome) -> Outcome<Self> {
        let event = Self::take(driver, context)?;
        match record(&event) {
            Ok(()) => Ok(event),
            // The pooled event may be of a context that is gone, and whose handle another one has now.
            Err(failure) if failure.is_about_handles() => {
                event.destroy();
                let event = Self::create(driver, context)?;
                record(&event)?;
                Ok(event)
            }
            Err(failure) => Err(failure),
        }
    }

    fn take(driver: &'d Driver, context: Context) -> Outcome<Self> {
        if let Some((_, raw)) = last().filter(|(of, _)| *of == context) {
            let _ = LAST.try_with(|last| last.0.set(None));
            return Ok(Self { driver, context, raw });
        }
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let free = pool.iter_mut().find(|(of, _)| *of == context).and_then(|(_, free)| free.pop());
        drop(pool);
        match free {
            Some(raw) => Ok(Self { driver, context, raw }),
            None => Self::create(driver, context),
        }
    }

    fn create(driver: &'d Driver, context: Context) -> Outcome<Self> {
        let _entered = context.enter(driver)?;
        let mut event = 0;
        // SAFETY: a place for an event.
        unsafe { driver.event_create(&raw mut event, DISABLE_TIMING) }?;
        Ok(Self { driver, context, raw: event })
    }

    /// Not back into the pool.
    fn destroy(self) {
        // SAFETY: nobody else has the event. Should it fail, the event went with its context.
        let _ = unsafe { self.driver.event_destroy(self.raw) };
        core::mem::forget(self);
    }

    /// Makes later work of `stream` wait for the event.
    pub(super) fn make_wait(&self, stream: RawStream) -> Outcome {
        // SAFETY: as for `of_stream`.
        unsafe { self.driver.stream_wait(stream, self.raw, 0) }
    }

    /// Calls `ask` with the event's own context current: whoever looks at it may have none.
    pub(super) fn in_context<R>(&self, ask: impl FnOnce() -> Outcome<R>) -> Outcome<R> {
        let _entered = self.context.enter(self.driver)?;
        ask()
    }

    /// Whether the work before the event is done.
    pub(super) fn is_done(&self) -> Outcome<bool> {
        // SAFETY: an event of the driver's.
        match unsafe { self.driver.event_query(self.raw) } {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == code::NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Waits on the host for the work before the event.
    pub(super) fn wait(&self) -> Outcome {
        // SAFETY: an event of the driver's.
        unsafe { self.driver.event_synchronize(self.raw) }
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // Where the thread is at its end there is no such place any more.
        let before = LAST.try_with(|last| last.0.replace(Some((self.context, self.raw))));
        let spare = before.unwrap_or(Some((self.context, self.raw)));
        if let Some((context, raw)) = spare {
            into_pool(context, raw);
        }
    }
}
