//! The events of releases: whether one may be recorded (`HoldReleases`, captures), and how.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, TryLockError};

#[cfg(feature = "python")]
use crate::array::stream_handle::StreamHandle;
use crate::driver::context::{Context, Relaxed};
use crate::driver::event::Event;
use crate::driver::functions::{Driver, DriverError, Outcome, code};
use crate::driver::reach::Reach;
use crate::driver::stream::{LEGACY, capture_of};
use crate::order::release::THREAD;
use crate::process::fork::PerProcess;
use crate::process::settings::SETTINGS;

/// The state that guards share with the threads that record events.
#[derive(Debug)]
pub(crate) struct HoldState {
    /// The number of [`HoldReleases`](crate::cuda::HoldReleases) guards.
    pub(crate) held: AtomicUsize,
    /// Locked for reading while a thread checks whether a release may record events, and while it records them.
    recording: RwLock<()>,
    /// Set when the driver has no `cuCtxRecordEvent`.
    lacks_context_events: AtomicBool,
}

static HOLD_STATE: PerProcess<HoldState> = PerProcess::new(|_| HoldState {
    held: AtomicUsize::new(0),
    recording: RwLock::new(()),
    lacks_context_events: AtomicBool::new(false),
});

/// Holds releases from now on. Waits for the threads that are recording events.
pub(crate) fn hold() -> &'static HoldState {
    let state = HOLD_STATE.get();
    state.held.fetch_add(1, Ordering::SeqCst);
    // Waits until the threads that have seen no hold have recorded their events.
    drop(state.recording.write().unwrap_or_else(PoisonError::into_inner));
    state
}

/// While a value of this type exists, its thread records no event for a new or deferred release, because it cannot ask
/// libraries whether they capture a graph.
#[cfg(feature = "python")]
pub(crate) struct DeferRecording(());

#[cfg(feature = "python")]
impl DeferRecording {
    pub(crate) fn new() -> Self {
        THREAD.with(|thread| thread.defers.set(thread.defers.get() + 1));
        Self(())
    }
}

#[cfg(feature = "python")]
impl Drop for DeferRecording {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.defers.set(thread.defers.get() - 1));
    }
}

/// States which stream the consumer of this thread's call has named. While it exists, no event for all work of a context is
/// recorded if that stream captures a graph, because the event would invalidate the capture.
#[cfg(feature = "python")]
pub(crate) struct NamedConsumer(Option<StreamHandle>);

#[cfg(feature = "python")]
impl NamedConsumer {
    pub(crate) fn new(stream: StreamHandle) -> Self {
        Self(THREAD.with(|thread| thread.consumer.replace(Some(stream))))
    }
}

#[cfg(feature = "python")]
impl Drop for NamedConsumer {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.consumer.set(self.0));
    }
}

/// Returns whether a library that can be asked captures a graph, on this device or on any.
pub(crate) fn library_is_capturing(device: Option<i32>) -> bool {
    SETTINGS.capture_hook.get().is_some_and(|is_capturing| is_capturing(device))
}

/// Makes releases call `is_capturing` first. While it returns true, releases are deferred without an event.
#[cfg(feature = "python")]
pub(crate) fn set_capture_hook(is_capturing: fn(Option<i32>) -> bool) {
    // The first hook stays.
    let _ = SETTINGS.capture_hook.set(is_capturing);
}

/// Calls `record`, unless releases are held or a library captures a graph. [`hold`] waits until `record`
/// has returned.
///
/// While it waits, nothing else is recorded: `record` may be waiting for work that needs a lock of this thread, such as
/// the Python interpreter's.
pub(crate) fn unless_held<R>(reach: Reach, record: impl FnOnce() -> Option<R>) -> Option<R> {
    if is_deferred() { None } else { unless_captured(reach, record) }
}

/// As [`unless_held`], also on a thread that records no event for a release.
pub(crate) fn unless_captured<R>(reach: Reach, record: impl FnOnce() -> Option<R>) -> Option<R> {
    if HOLD_STATE.get().held.load(Ordering::SeqCst) != 0 {
        return None;
    }
    // The hook is foreign code, so it runs without the lock.
    if library_is_capturing(reach.device()) {
        return None;
    }
    let _recording = match HOLD_STATE.get().recording.try_read() {
        Ok(recording) => recording,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if HOLD_STATE.get().held.load(Ordering::SeqCst) == 0 { record() } else { None }
}

/// Returns whether a [`DeferRecording`] guard of this thread exists.
fn is_deferred() -> bool {
    THREAD.with(|thread| thread.defers.get() != 0)
}

/// Records an event after all work of each context in `reach`. Returns the events that are not done yet, or `None` if
/// they cannot be recorded now, for example during a capture.
pub(crate) fn events_after(driver: &'static Driver, reach: Reach) -> Option<Vec<Event<'static>>> {
    unless_held(reach, || {
        let _relaxed = Relaxed::new(driver);
        let mut events = Vec::new();
        for context in contexts(driver, reach)? {
            match event_after(driver, context) {
                Ok(Some(event)) => events.push(event),
                // The state of the work is unknown. A later poll may succeed.
                Err(failure) if !failure.is_final() => {
                    let lacks = failure.code == code::NOT_FOUND;
                    HOLD_STATE.get().lacks_context_events.fetch_or(lacks, Ordering::Relaxed);
                    return None;
                }
                // The work is done; or the context is gone or broken, and its work with it.
                Ok(None) | Err(_) => {}
            }
        }
        Some(events)
    })
}

/// Returns whether a release can only be completed by waiting on the host, as with drivers before 12.5.
pub(crate) fn need_synchronize() -> bool {
    HOLD_STATE.get().lacks_context_events.load(Ordering::Relaxed)
}

/// Waits on the host for all contexts in `reach`, if no event can be recorded. Returns no events, or `None` if it
/// cannot wait for one of the contexts, for example while a graph is captured.
pub(crate) fn synchronized(driver: &Driver, reach: Reach) -> Option<Vec<Event<'static>>> {
    unless_held(reach, || {
        let _relaxed = Relaxed::new(driver);
        let waited = |context| finish(driver, context).map_or_else(DriverError::is_final, |()| true);
        contexts(driver, reach)?.all(waited).then(Vec::new)
    })
}

/// Waits on the host for all work of a context.
fn finish(driver: &Driver, context: Context) -> Outcome {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    // SAFETY: the function has no preconditions; the context is current.
    unsafe { driver.context_synchronize() }
}

/// Records an event after all work of a context. Returns `None` if that work is done.
fn event_after(driver: &'static Driver, context: Context) -> Outcome<Option<Event<'static>>> {
    let _entered = context.enter(driver)?;
    capture_of(driver, LEGACY)?;
    let event = Event::of_context(driver, context)?;
    Ok(if event.is_done()? { None } else { Some(event) })
}

/// Returns the contexts of a reach, or `None` if the driver does not report which are in use.
fn contexts(driver: &Driver, reach: Reach) -> Option<impl Iterator<Item = Context> + use<>> {
    match reach.all(driver) {
        // The driver has shut down, so no work is left.
        Err(failure) if failure.is_final() => reach.own_alone().all(driver).ok(),
        contexts => contexts.ok(),
    }
}
