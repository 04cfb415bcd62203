//! How memory that was allocated here goes back to the driver.

use core::ptr::with_exposed_provenance_mut;

use crate::cuda::blocking::run_blocking;
use crate::cuda::context::{Context, Relaxed};
use crate::cuda::driver::{Driver, Outcome, RawStream, driver};
use crate::cuda::stream_query::{LEGACY, capture_of};
use crate::process::counters;

/// Allocated memory, freed by its drop.
pub(crate) struct Allocation {
    pub(crate) address: usize,
    pub(crate) kind: MemoryKind,
    pub(crate) context: Context,
}

impl Allocation {
    /// For memory that goes back by a call that was made already.
    #[cfg(feature = "python")]
    pub(crate) fn was_freed(self) {
        core::mem::forget(self);
        counters::ALLOCATIONS.sub();
    }

    fn free(&self, driver: &Driver) -> Outcome {
        let _entered = self.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        match self.kind {
            // SAFETY: the block's own memory, freed once.
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
                // A context that is gone took the memory with it.
                let _ = self.free(driver);
            };
            // A pool takes it back without a wait.
            if self.kind == MemoryKind::Pool { free() } else { run_blocking(free) }
        }
        counters::ALLOCATIONS.sub();
    }
}

/// The kinds of memory that CUDA has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of one device (`cuMemAlloc`).
    Device,
    /// Memory of one device from the stream-ordered pool that this crate has there (`cuMemAllocFromPoolAsync`).
    Pool,
    /// Host memory that all devices reach (`cuMemHostAlloc`, portable).
    Pinned,
    /// Memory that the driver moves between host and devices (`cuMemAllocManaged`).
    Managed,
}

/// A device address of the driver's; CUDA has no 32-bit machines any more.
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

/// Runs `work` with the legacy default stream of the current context. While a stream that joins with it captures a graph,
/// which it would spoil, with a stream that is there for this work alone.
pub(crate) fn with_usable_stream<R>(
    driver: &Driver,
    work: impl FnOnce(RawStream) -> Outcome<R>,
) -> Outcome<R> {
    const NON_BLOCKING: u32 = 1;
    if capture_of(driver, LEGACY).is_ok() {
        return work(LEGACY);
    }
    let mut stream = 0;
    // SAFETY: a place for a stream.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    let done = work(stream);
    // SAFETY: created above, used no more.
    let _ = unsafe { driver.stream_destroy(stream) };
    done
}
