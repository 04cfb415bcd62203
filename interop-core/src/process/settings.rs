//! What a program sets for all of its threads, and the promise without which no setting switches order off.
#![expect(unsafe_code, reason = "declares an unsafe function that stands for a promise")]

use core::sync::atomic::{AtomicU8, AtomicUsize};
use std::sync::OnceLock;

/// The settings of the program. Each policy is a number that its own module makes and reads.
pub(crate) struct Settings {
    pub(crate) release_policy: AtomicU8,
    pub(crate) missing_stream_policy: AtomicU8,
    /// The limit of deferred releases on each device, in bytes; `usize::MAX` for the default.
    pub(crate) release_limit: AtomicUsize,
    /// Runs a closure that may wait for a device, without the locks that the work of the device may need.
    pub(crate) run_blocking: OnceLock<fn(&mut dyn FnMut())>,
    /// Returns whether a stream with work on this device, or on any device, captures a graph. For libraries that can be
    /// asked.
    pub(crate) captures: OnceLock<fn(Option<i32>) -> bool>,
}

pub(crate) static SETTINGS: Settings = Settings {
    release_policy: AtomicU8::new(0),
    missing_stream_policy: AtomicU8::new(0),
    release_limit: AtomicUsize::new(usize::MAX),
    run_blocking: OnceLock::new(),
    captures: OnceLock::new(),
};

/// The promise of a program that it orders all work on shared CUDA memory itself.
///
/// The settings that order nothing need it: [`ReleasePolicy::Immediate`](crate::cuda::ReleasePolicy::Immediate) and
/// [`MissingStreamPolicy::NothingPending`](crate::cuda::MissingStreamPolicy::NothingPending). Safe code cannot make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedByProgram(());

impl OrderedByProgram {
    /// The promise that was given when a setting was made.
    pub(crate) const GIVEN: Self = Self(());

    /// Makes the promise.
    ///
    /// # Safety
    ///
    /// While a setting with this value is in effect, in all threads: before an array of CUDA memory is handed over or
    /// dropped, the program has waited for all work on it, of every stream and library, or has ordered the next use after
    /// that work.
    ///
    /// ```
    /// use interop_core::cuda::{OrderedByProgram, ReleasePolicy, set_release_policy};
    ///
    /// // SAFETY: this program waits for the device before it drops an array.
    /// set_release_policy(ReleasePolicy::Immediate(unsafe { OrderedByProgram::promise() }));
    /// ```
    #[must_use]
    pub const unsafe fn promise() -> Self {
        Self(())
    }
}
