//! The promise without which no setting switches order off.
#![expect(unsafe_code, reason = "declares an unsafe function that stands for a promise")]

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
