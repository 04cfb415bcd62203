//! What a program sets for all of its threads.
#![expect(unsafe_code, reason = "declares an unsafe function that switches order off")]

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::OnceLock;

/// The settings of the program.
pub(crate) struct Settings {
    /// Whether a release waits for the work of all contexts.
    pub(crate) releases_after_all_contexts: AtomicBool,
    unordered_releases: AtomicBool,
    unordered_unknown_work: AtomicBool,
    /// The limit of deferred releases on each device, in bytes; `usize::MAX` for the default.
    pub(crate) release_limit: AtomicUsize,
    /// Runs a closure that may wait for a device, without the locks that the work of the device may need.
    pub(crate) run_blocking: OnceLock<fn(&mut dyn FnMut())>,
    /// Returns whether a stream with work on this device, or on any device, captures a graph. For libraries that can be
    /// asked.
    pub(crate) capture_hook: OnceLock<fn(Option<i32>) -> bool>,
}

pub(crate) static SETTINGS: Settings = Settings {
    releases_after_all_contexts: AtomicBool::new(false),
    unordered_releases: AtomicBool::new(false),
    unordered_unknown_work: AtomicBool::new(false),
    release_limit: AtomicUsize::new(usize::MAX),
    run_blocking: OnceLock::new(),
    capture_hook: OnceLock::new(),
};

/// What the program orders itself, so that this crate does not. See [`set_unordered`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unordered {
    /// A release of CUDA memory waits for nothing.
    pub releases: bool,
    /// Work on a stream that nobody knows is taken for finished: an import from a producer that states no stream, and an
    /// export of an array of which neither the storage nor a `stream` field knows the stream.
    pub unknown_work: bool,
}

/// Sets what this crate leaves unordered, for the whole program. By default it orders everything. This is the only way to
/// switch order off.
///
/// # Safety
///
/// While the setting is in effect, in all threads, the program itself orders what the setting leaves out:
///
/// 1. With [`releases`](Unordered::releases): before an array of CUDA memory is dropped, the program has waited for all work on
///    it, of every stream and library, or the memory is used next after that work.
/// 2. With [`unknown_work`](Unordered::unknown_work): before an array of CUDA memory whose stream is unknown is handed over,
///    the program has waited for all work on it.
///
/// ```
/// use interop_core::cuda::{Unordered, set_unordered, unordered};
///
/// // SAFETY: this program waits for the device before it drops an array.
/// unsafe { set_unordered(Unordered { releases: true, ..Unordered::default() }) };
/// assert!(unordered().releases);
/// ```
pub unsafe fn set_unordered(what: Unordered) {
    SETTINGS.unordered_releases.store(what.releases, Ordering::Relaxed);
    SETTINGS.unordered_unknown_work.store(what.unknown_work, Ordering::Relaxed);
}

/// Returns what this crate leaves unordered.
#[must_use]
pub fn unordered() -> Unordered {
    Unordered {
        releases: SETTINGS.unordered_releases.load(Ordering::Relaxed),
        unknown_work: SETTINGS.unordered_unknown_work.load(Ordering::Relaxed),
    }
}
