//! `HoldReleases`: a guard that keeps releases from recording events.

use crate::cuda::release::held::HoldState;
use crate::cuda::release::queue::make_due;

/// A guard that defers releases without recording events. Hold one while a graph is captured on a non-blocking stream,
/// so that nothing that is dropped meanwhile affects the capture.
///
/// A release under [`ReleasePolicy::Immediate`](crate::cuda::ReleasePolicy::Immediate) needs no event and is not held.
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
    /// Waits for the threads that are recording events. One of them may be waiting for a device (drivers before 12.5).
    /// With Python, call this function in `py.detach`, because the work of the device may include a host function that
    /// needs the interpreter's lock.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a guard that is made by mistake should not be easy to make"
    )]
    pub fn new() -> Self {
        Self(HoldState::hold())
    }
}

impl Drop for HoldReleases {
    fn drop(&mut self) {
        self.0.release();
        make_due();
    }
}
