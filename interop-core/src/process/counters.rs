//! Counts of live exports and allocations, for leak tests. Without the feature `counters` nothing is counted.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A count of live objects.
pub(crate) struct Counter(AtomicUsize);

/// The counters of the process.
pub(crate) struct Counters {
    /// Exports whose deleter has not run yet.
    pub(crate) exports: Counter,
    /// Allocations of [`HostVec`](crate::HostVec), [`HostBuffer`](crate::storage::HostBuffer) and
    /// [`CudaBuffer`](crate::cuda::CudaBuffer).
    pub(crate) allocations: Counter,
}

pub(crate) static COUNTERS: Counters =
    Counters { exports: Counter(AtomicUsize::new(0)), allocations: Counter(AtomicUsize::new(0)) };

impl Counter {
    #[inline]
    pub(crate) fn add(&self) {
        if cfg!(feature = "counters") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn sub(&self) {
        if cfg!(feature = "counters") {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The number of exports that their consumers have not released.
#[cfg(feature = "counters")]
#[must_use]
pub fn live_exports() -> usize {
    COUNTERS.exports.0.load(Ordering::Relaxed)
}

/// The number of live allocations of [`HostVec`](crate::HostVec), [`HostBuffer`](crate::storage::HostBuffer) and
/// [`CudaBuffer`](crate::cuda::CudaBuffer).
#[cfg(feature = "counters")]
#[must_use]
pub fn live_allocations() -> usize {
    COUNTERS.allocations.0.load(Ordering::Relaxed)
}
