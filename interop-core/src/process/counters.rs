//! Counts of live exports and allocations, for leak tests. Without the feature `counters` nothing is counted.

#[cfg(feature = "counters")]
use core::sync::atomic::{AtomicUsize, Ordering};

/// A count of live objects.
pub(crate) struct Counter {
    #[cfg(feature = "counters")]
    live: AtomicUsize,
}

/// Exports whose deleter has not run yet.
pub(crate) static EXPORTS: Counter = Counter::new();

/// Allocations of [`HostVec`](crate::HostVec), [`HostBuffer`](crate::HostBuffer) and
/// [`CudaBuffer`](crate::cuda::CudaBuffer).
pub(crate) static ALLOCATIONS: Counter = Counter::new();

#[cfg(feature = "counters")]
impl Counter {
    const fn new() -> Self {
        Self { live: AtomicUsize::new(0) }
    }

    pub(crate) fn add(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "counters"))]
#[expect(clippy::unused_self, reason = "the same signatures as with the feature")]
impl Counter {
    const fn new() -> Self {
        Self {}
    }

    #[inline]
    pub(crate) fn add(&self) {}

    #[inline]
    pub(crate) fn sub(&self) {}
}

/// The number of exports that their consumers have not released.
#[cfg(feature = "counters")]
#[must_use]
pub fn live_exports() -> usize {
    EXPORTS.live.load(Ordering::Relaxed)
}

/// The number of live allocations of [`HostVec`](crate::HostVec), [`HostBuffer`](crate::HostBuffer) and
/// [`CudaBuffer`](crate::cuda::CudaBuffer).
#[cfg(feature = "counters")]
#[must_use]
pub fn live_allocations() -> usize {
    ALLOCATIONS.live.load(Ordering::Relaxed)
}
