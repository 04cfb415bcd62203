//! What keeps releases from being recorded: `HoldReleases` guards, and captures that can be seen.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::cuda::release::queue::make_due;
use crate::cuda::release::scope::ReleaseScope;
use crate::process::fork::PerProcess;

/// What is between decisions and holds.
#[derive(Debug)]
struct HoldState {
    /// How many [`HoldReleases`] there are.
    held: AtomicUsize,
    /// Held for reading while it is decided whether a release may record events, and while it does.
    recording: RwLock<()>,
}

static HOLD_STATE: PerProcess<HoldState> =
    PerProcess::new(|_| HoldState { held: AtomicUsize::new(0), recording: RwLock::new(()) });

/// While one of these lives, releases are parked undecided: hold one while a graph is captured on a non-blocking stream,
/// and nothing that is dropped meanwhile touches the capture. What is released under [`ReleasePolicy::Immediate`](crate::cuda::ReleasePolicy::Immediate) needs no
/// event, and is not held.
///
/// ```
/// use interop_core::cuda::HoldReleases;
///
/// let is_held = HoldReleases::new();
/// // ... capture a graph; imports and exports may be dropped ...
/// drop(is_held);
/// ```
#[derive(Debug)]
pub struct HoldReleases(&'static HoldState);

impl HoldReleases {
    /// Holds releases from now on, on all threads.
    ///
    /// It waits for those that are being decided, of which one may wait for a device (drivers before 12.5): with Python call it
    /// in `py.detach`, because the work that is waited for may hold a function of the host that needs the interpreter's lock.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a guard that is made by mistake should not be easy to make"
    )]
    pub fn new() -> Self {
        let hold_state = HOLD_STATE.get();
        hold_state.held.fetch_add(1, Ordering::SeqCst);
        // Waits for the threads that have seen no hold, until they have recorded their events.
        drop(hold_state.recording.write().unwrap_or_else(PoisonError::into_inner));
        Self(hold_state)
    }
}

impl Drop for HoldReleases {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
        make_due();
    }
}

thread_local! {
    /// How many [`DeferRecording`] this thread has.
    static DEFER_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// While one of these lives, its thread decides no release, new or parked: it cannot ask libraries meanwhile whether they
/// capture a graph.
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

/// Says whether a stream that is at work on this device, or on any, captures a graph, for libraries that can be asked for theirs.
static CAPTURE_HOOK: OnceLock<fn(Option<i32>) -> bool> = OnceLock::new();

/// Has releases ask `captures` first: they are parked undecided while it says so.
#[cfg(feature = "python")]
pub(crate) fn set_capture_hook(captures: fn(Option<i32>) -> bool) {
    // The first one stays.
    let _ = CAPTURE_HOOK.set(captures);
}

/// Calls `record`, unless releases are held or a library's work is being captured. No hold begins before it is back.
pub(crate) fn unless_held<R>(scope: ReleaseScope, record: impl FnOnce() -> Option<R>) -> Option<R> {
    // Foreign code, so not under the lock.
    if CAPTURE_HOOK.get().is_some_and(|captures| captures(scope.device())) {
        return None;
    }
    let _recording = HOLD_STATE.get().recording.read().unwrap_or_else(PoisonError::into_inner);
    if is_held() { None } else { record() }
}

/// Whether nothing is decided on this thread.
pub(crate) fn is_held() -> bool {
    // A thread at its end defers nothing.
    DEFER_DEPTH.try_with(|later| later.get() != 0).unwrap_or(false)
        || HOLD_STATE.get().held.load(Ordering::SeqCst) != 0
}
