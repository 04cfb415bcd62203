//! Memory that this crate allocates, and how it is freed.

use core::ptr::with_exposed_provenance_mut;

use crate::cuda::blocking::run_blocking;
use crate::cuda::context::{Context, Relaxed};
use crate::cuda::driver::{Driver, Outcome, RawStream, driver};
use crate::cuda::stream_query::{LEGACY, capture_of};
use crate::process::counters;

/// Allocated memory. Its drop frees it.
pub(crate) struct Allocation {
    pub(crate) address: usize,
    pub(crate) kind: MemoryKind,
    pub(crate) context: Context,
}

impl Allocation {
    /// Forgets the allocation, because the call that frees it was already made.
    #[cfg(feature = "python")]
    pub(crate) fn was_freed(self) {
        core::mem::forget(self);
        counters::ALLOCATIONS.sub();
    }

    fn free(&self, driver: &Driver) -> Outcome {
        let _entered = self.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        match self.kind {
            // SAFETY: the allocation owns the memory and frees it once.
            MemoryKind::Device | MemoryKind::Managed => unsafe { driver.memory_free(self.address as u64) },
            MemoryKind::Pool => {
                // SAFETY: as above; the stream is live.
                with_usable_stream(driver, |stream| unsafe {
                    driver.memory_pool_free(self.address as u64, stream)
                })
            }
            // SAFETY: as above.
            MemoryKind::Pinned => unsafe {
                driver.memory_host_free(with_exposed_provenance_mut(self.address))
            },
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            let free = || {
                // If the context is gone, the memory was freed with it.
                let _ = self.free(driver);
            };
            // Freeing pool memory does not wait.
            if self.kind == MemoryKind::Pool { free() } else { run_blocking(free) }
        }
        counters::ALLOCATIONS.sub();
    }
}

/// The kinds of CUDA memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of one device (`cuMemAlloc`).
    Device,
    /// Memory of one device from this crate's stream-ordered pool for it (`cuMemAllocFromPoolAsync`).
    Pool,
    /// Host memory that all devices can reach (`cuMemHostAlloc`, portable).
    Pinned,
    /// Memory that the driver moves between host and devices (`cuMemAllocManaged`).
    Managed,
}

/// Converts a device address of the driver. CUDA has no 32-bit machines any more.
#[expect(clippy::cast_possible_truncation, reason = "as wide as an address")]
pub(crate) const fn to_usize(address: u64) -> usize {
    address as usize
}

/// Queues work on a stream of the current context and waits for it.
pub(crate) fn finished(driver: &Driver, work: impl FnOnce(RawStream) -> Outcome) -> Outcome {
    with_usable_stream(driver, |stream| {
        work(stream)?;
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(stream) }
    })
}

/// Runs `work` with the legacy default stream of the current context. While a stream that synchronizes with it captures
/// a graph, using it would invalidate the capture. Then `work` gets a stream that is created for this call only.
pub(crate) fn with_usable_stream<R>(
    driver: &Driver,
    work: impl FnOnce(RawStream) -> Outcome<R>,
) -> Outcome<R> {
    const NON_BLOCKING: u32 = 1;
    if capture_of(driver, LEGACY).is_ok() {
        return work(LEGACY);
    }
    let mut stream = 0;
    // SAFETY: `stream` is valid for a write.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    let done = work(stream);
    // SAFETY: the stream was created above and is not used any more.
    let _ = unsafe { driver.stream_destroy(stream) };
    done
}
