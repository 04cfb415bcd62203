//! Events, with a pool for each context, because creating one costs as much as recording and waiting.

use core::cell::Cell;

use crate::driver::context::{Context, KnownContext, PerContext};
use crate::driver::functions::{CUevent, CUstream, Driver, DriverError, Outcome, code};
use crate::driver::stream::context_of;

const DISABLE_TIMING: u32 = 2;

/// The free events of each context.
static FREE_EVENTS: PerContext<Vec<CUevent>> = PerContext::new();

/// The event that a thread used last, which is nearly always the one that it needs next.
struct ThreadEvent(Cell<Option<FreeEvent>>);

/// An event that is kept for reuse.
#[derive(Clone, Copy)]
struct FreeEvent {
    context: KnownContext,
    raw: CUevent,
}

thread_local!(static THREAD_EVENT: ThreadEvent = const { ThreadEvent(Cell::new(None)) });

fn thread_event() -> Option<FreeEvent> {
    THREAD_EVENT.try_with(|event| event.0.get()).ok().flatten()
}

impl Drop for ThreadEvent {
    fn drop(&mut self) {
        // Without this, every thread that ends would leak an event.
        self.0.take().into_iter().for_each(FreeEvent::into_pool);
    }
}

impl FreeEvent {
    fn into_pool(self) {
        // Making a list does not fail.
        let _ = FREE_EVENTS.with_known(self.context, || Ok(Vec::new()), |_, free| free.push(self.raw));
    }
}

/// Returns the driver handles of the events that are kept for reuse: those that no thread has, and this thread's own.
/// Every other live event is in use or lost, which leak tests check.
#[cfg(feature = "counters")]
#[must_use]
pub fn pooled_events() -> Vec<CUevent> {
    let pool = FREE_EVENTS.lock();
    let free = pool.iter().flat_map(|(_, free)| free);
    free.copied().chain(thread_event().map(|own| own.raw)).collect()
}

/// An event without timing. Its drop returns it to the pool.
///
/// It may be returned as soon as a wait for it is queued, because a wait refers to the last record before it.
pub(crate) struct Event<'d> {
    driver: &'d Driver,
    context: KnownContext,
    raw: CUevent,
}

impl<'d> Event<'d> {
    /// Records an event after the work that is on a stream now. Without a `context`, the stream is assumed to be in the
    /// context of the thread's last event. The driver reports an error if it is not.
    pub(crate) fn of_stream(driver: &'d Driver, context: Option<Context>, stream: CUstream) -> Outcome<Self> {
        // SAFETY: the event comes from the driver; the stream is live, as required of every `StreamHandle`.
        let record = |event: &Self| unsafe { driver.event_record(event.raw, stream) };
        if let Some(context) = context {
            return Self::recorded(driver, context, record);
        }
        if let Some(event) = Self::take_thread_event(driver, |_| true) {
            match record(&event) {
                Ok(()) => return Ok(event),
                // The stream is in another context, or was destroyed. `context_of` finds out which.
                Err(failure) if failure.is_about_handles() => {}
                Err(failure) => return Err(failure),
            }
        }
        let own = context_of(driver, stream)?;
        let own = own.ok_or(DriverError { symbol: "cuStreamGetCtx", code: code::INVALID_HANDLE })?;
        Self::recorded(driver, own, record)
    }

    /// Records an event after all current work of a context, on any stream.
    pub(crate) fn of_context(driver: &'d Driver, context: Context) -> Outcome<Self> {
        // SAFETY: the event belongs to the context, and the context comes from the driver.
        Self::recorded(driver, context, |event| unsafe {
            driver.context_record(context.to_raw().get(), event.raw)
        })
    }

    fn recorded(driver: &'d Driver, context: Context, record: impl Fn(&Self) -> Outcome) -> Outcome<Self> {
        let event = Self::take(driver, context)?;
        match record(&event) {
            Ok(()) => Ok(event),
            // The event was destroyed when its primary context was reset, or the failure is not about the event.
            Err(failure) if failure.is_about_handles() => {
                let fresh = Self::create(driver, context)?;
                if let Err(failure) = record(&fresh) {
                    fresh.destroy();
                    return Err(failure);
                }
                // Not destroyed, because somebody else may have the handle now.
                core::mem::forget(event);
                Ok(fresh)
            }
            Err(failure) => Err(failure),
        }
    }

    fn take(driver: &'d Driver, context: Context) -> Outcome<Self> {
        if let Some(event) = Self::take_thread_event(driver, |last| last == context) {
            return Ok(event);
        }
        let pop = |known: &mut KnownContext, free: &mut Vec<CUevent>| {
            free.pop().map(|raw| Self { driver, context: *known, raw })
        };
        let event = FREE_EVENTS.with(driver, context, || Ok(Vec::new()), pop)?;
        event.map_or_else(|| Self::create(driver, context), Ok)
    }

    /// Takes the event that the thread used last, if `will_do` accepts its context and that context still exists.
    fn take_thread_event(driver: &'d Driver, will_do: impl FnOnce(Context) -> bool) -> Option<Self> {
        let FreeEvent { context, raw } = thread_event()
            .filter(|event| will_do(event.context.context) && event.context.is_there(driver))?;
        let _ = THREAD_EVENT.try_with(|event| event.0.set(None));
        Some(Self { driver, context, raw })
    }

    fn create(driver: &'d Driver, context: Context) -> Outcome<Self> {
        let _entered = context.enter(driver)?;
        // A primary context is retained from here on, so its number is not needed to distinguish it.
        if let Ok(ordinal) = Context::current_ordinal(driver) {
            Context::retain_primary(driver, ordinal);
        }
        let context = KnownContext::new(driver, context)?;
        let mut event = 0;
        // SAFETY: `event` is valid for a write.
        unsafe { driver.event_create(&raw mut event, DISABLE_TIMING) }?;
        Ok(Self { driver, context, raw: event })
    }

    /// Destroys the event instead of returning it to the pool. Only for an event that was just created.
    fn destroy(self) {
        // SAFETY: nobody else has the event.
        let _ = unsafe { self.driver.event_destroy(self.raw) };
        core::mem::forget(self);
    }

    /// The driver's handle of the event.
    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Makes later work of `stream` wait for the event.
    pub(crate) fn make_wait(&self, stream: CUstream) -> Outcome {
        if !self.context.was_not_reset() {
            return Err(DriverError { symbol: "cuStreamWaitEvent", code: code::CONTEXT_IS_DESTROYED });
        }
        // SAFETY: as for `of_stream`.
        unsafe { self.driver.stream_wait(stream, self.raw, 0) }
    }

    /// Calls `ask` with the event's context current, because the thread that polls may have none. Fails if that context
    /// is gone, even if another one has its handle.
    pub(crate) fn in_context<R>(&self, ask: impl FnOnce() -> Outcome<R>) -> Outcome<R> {
        if !self.context.is_there(self.driver) {
            return Err(DriverError { symbol: "cuCtxGetId", code: code::CONTEXT_IS_DESTROYED });
        }
        let _entered = self.context.context.enter(self.driver)?;
        ask()
    }

    /// Returns whether the work before the event is done.
    pub(crate) fn is_done(&self) -> Outcome<bool> {
        // SAFETY: the event comes from the driver.
        match unsafe { self.driver.event_query(self.raw) } {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == code::NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Waits on the host for the work before the event.
    pub(crate) fn wait(&self) -> Outcome {
        // SAFETY: the event comes from the driver.
        unsafe { self.driver.event_synchronize(self.raw) }
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        if !self.context.was_not_reset() {
            return;
        }
        // A thread that is ending has no such slot any more.
        let own = FreeEvent { context: self.context, raw: self.raw };
        let before = THREAD_EVENT.try_with(|event| event.0.replace(Some(own)));
        before.unwrap_or(Some(own)).into_iter().for_each(FreeEvent::into_pool);
    }
}
