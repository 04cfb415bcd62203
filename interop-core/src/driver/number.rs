//! Numbers in host memory that the streams of several processes write and await.
#![expect(unsafe_code, reason = "reads memory of several processes")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

/// A value that a number in shared memory is to reach. The number only increases.
#[derive(Clone, Copy, Debug)]
pub struct SharedNumber {
    place: NonNull<AtomicU64>,
    pub(crate) on_devices: u64,
    pub(crate) value: u64,
}

// SAFETY: the number may be used by any thread, as its maker promises.
unsafe impl Send for SharedNumber {}
// SAFETY: as above.
unsafe impl Sync for SharedNumber {}

impl SharedNumber {
    /// The value of the number at `place`, which devices reach at `on_devices`.
    ///
    /// # Safety
    ///
    /// As long as the value is used, and until the work that it was queued with has run:
    ///
    /// 1. `place` is aligned and mapped for writes, and all processes use it as an atomic.
    /// 2. The memory is registered for every context, where `on_devices` is its address.
    #[must_use]
    pub const unsafe fn new(place: NonNull<AtomicU64>, on_devices: u64, value: u64) -> Self {
        Self { place, on_devices, value }
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: aligned, mapped, and an atomic for all, as the maker of the value promises.
        unsafe { self.place.as_ref() }
    }

    /// Whether the number has reached the value.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.number().load(Ordering::Acquire) >= self.value
    }

    /// Writes the value as the host.
    pub fn reach(&self) {
        self.number().fetch_max(self.value, Ordering::Release);
    }

    /// Waits on the host.
    pub(crate) fn wait(&self) {
        const PAUSE: Duration = Duration::from_micros(20);
        while !self.is_reached() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// An owner of memory of another process, which hears by a number that the memory is no longer used.
pub trait EndsInNumber: Send {
    /// The number that is written behind all work that may use the memory.
    fn number(&self) -> Option<SharedNumber>;

    /// The write is queued. The owner is dropped before that work is done.
    fn was_queued(&mut self);
}
