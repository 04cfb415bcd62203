//! Counts of live exports and allocations, for leak tests. Without the feature `counters` nothing is counted.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A count of live objects.
pub(crate) struct Counter(AtomicUsize);

/// Exports whose deleter has not run yet.
pub(crate) static EXPORTS: Counter = Counter::new();

/// Allocations of [`HostVec`](crate::HostVec), [`HostBuffer`](crate::storage::HostBuffer) and
/// [`CudaBuffer`](crate::cuda::CudaBuffer).
pub(crate) static ALLOCATIONS: Counter = Counter::new();

impl Counter {
    const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

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
    EXPORTS.0.load(Ordering::Relaxed)
}

/// The number of live allocations of [`HostVec`](crate::HostVec), [`HostBuffer`](crate::storage::HostBuffer) and
/// [`CudaBuffer`](crate::cuda::CudaBuffer).
#[cfg(feature = "counters")]
#[must_use]
pub fn live_allocations() -> usize {
    ALLOCATIONS.0.load(Ordering::Relaxed)
}
