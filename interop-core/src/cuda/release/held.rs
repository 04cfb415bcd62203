//! Whether releases may record events: no `HoldReleases` guard exists, and no capture was detected.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, TryLockError};

use crate::cuda::release::scope::ReleaseScope;
use crate::process::fork::PerProcess;

/// The state that guards share with the threads that record events.
#[derive(Debug)]
pub(crate) struct HoldState {
    /// The number of [`HoldReleases`](crate::cuda::HoldReleases) guards.
    held: AtomicUsize,
    /// Locked for reading while a thread checks whether a release may record events, and while it records them.
    recording: RwLock<()>,
}

static HOLD_STATE: PerProcess<HoldState> =
    PerProcess::new(|_| HoldState { held: AtomicUsize::new(0), recording: RwLock::new(()) });

impl HoldState {
    /// Holds releases from now on. Waits for the threads that are recording events.
    pub(crate) fn hold() -> &'static Self {
        let state = HOLD_STATE.get();
        state.held.fetch_add(1, Ordering::SeqCst);
        // Waits until the threads that have seen no hold have recorded their events.
        drop(state.recording.write().unwrap_or_else(PoisonError::into_inner));
        state
    }

    /// Ends one hold.
    pub(crate) fn release(&self) {
        self.held.fetch_sub(1, Ordering::AcqRel);
    }
}

thread_local! {
    /// The number of [`DeferRecording`] guards of this thread.
    static DEFER_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// While a value of this type exists, its thread records no event for a new or deferred release, because it cannot ask
/// libraries whether they capture a graph.
#[cfg(feature = "python")]
pub(crate) struct DeferRecording(());

#[cfg(feature = "python")]
impl DeferRecording {
    pub(crate) fn new() -> Self {
        DEFER_DEPTH.set(DEFER_DEPTH.get() + 1);
        Self(())
    }
}

#[cfg(feature = "python")]
impl Drop for DeferRecording {
    fn drop(&mut self) {
        DEFER_DEPTH.set(DEFER_DEPTH.get() - 1);
    }
}

/// Returns whether a stream with work on this device, or on any device, captures a graph. For libraries that can be
/// asked.
static CAPTURE_HOOK: OnceLock<fn(Option<i32>) -> bool> = OnceLock::new();

/// Makes releases call `captures` first. While it returns true, releases are deferred without an event.
#[cfg(feature = "python")]
pub(crate) fn set_capture_hook(captures: fn(Option<i32>) -> bool) {
    // The first hook stays.
    let _ = CAPTURE_HOOK.set(captures);
}

/// Calls `record`, unless releases are held or a library captures a graph. [`HoldState::hold`] waits until `record`
/// has returned.
///
/// While it waits, nothing else is recorded: `record` may be waiting for work that needs a lock of this thread, such as
/// the Python interpreter's.
pub(crate) fn unless_held<R>(scope: ReleaseScope, record: impl FnOnce() -> Option<R>) -> Option<R> {
    if is_deferred() { None } else { unless_captured(scope, record) }
}

/// As [`unless_held`], also on a thread that records no event for a release.
pub(crate) fn unless_captured<R>(scope: ReleaseScope, record: impl FnOnce() -> Option<R>) -> Option<R> {
    // The hook is foreign code, so it runs without the lock.
    if CAPTURE_HOOK.get().is_some_and(|captures| captures(scope.device())) {
        return None;
    }
    let _recording = match HOLD_STATE.get().recording.try_read() {
        Ok(recording) => recording,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if HOLD_STATE.get().held.load(Ordering::SeqCst) == 0 { record() } else { None }
}

/// Returns whether this thread must not record events now.
pub(crate) fn is_held() -> bool {
    is_deferred() || HOLD_STATE.get().held.load(Ordering::SeqCst) != 0
}

/// Returns whether a [`DeferRecording`] guard of this thread exists. A thread that is ending has none.
fn is_deferred() -> bool {
    DEFER_DEPTH.try_with(|later| later.get() != 0).unwrap_or(false)
}
