//! Memory that this crate allocates, and how it is freed.
//!
//! Pool memory is a block, which is allocated for a consumer's stream. As long as only this crate has used it, and on that
//! stream alone, one event is behind all of its work (`uses`). A dropped block is then free in the order of that event.
//! Any other block is released as all other memory.

use core::ptr::with_exposed_provenance_mut;

use crate::driver::context::Relaxed;
use crate::driver::event::Event;
use crate::driver::functions::{CUstream, Driver, Outcome, driver, run_blocking};
use crate::driver::stream::{OwnHandle, OwnStream};
use crate::process::counters::COUNTERS;

/// Allocated memory. Its drop frees it.
pub(crate) struct Allocation {
    pub(crate) address: usize,
    pub(crate) kind: MemoryKind,
    /// The context, and the stream on which pool memory was allocated and is freed.
    pub(crate) home: OwnStream,
}

impl Allocation {
    /// Frees pool memory in stream order, after its work on the stream of its consumer. Returns the allocation if that is not
    /// possible.
    pub(crate) fn free_after(self, work: Option<&Event<'_>>) -> Result<(), Self> {
        let queued = || {
            let driver = driver().ok()?;
            let _entered = self.home.context.enter(driver).ok()?;
            let _relaxed = Relaxed::new(driver);
            let free = |OwnHandle { key, raw }| {
                if let Some(work) = work {
                    // The spare stream waits for nobody.
                    (key == self.home.key).then(|| work.make_wait(raw))?.ok()?;
                }
                self.free_on(driver, raw).ok()
            };
            self.home.with(driver, free).ok()?
        };
        if queued().is_none() {
            return Err(self);
        }
        self.was_freed();
        Ok(())
    }

    /// Frees pool memory in the order of a stream of this crate. [`was_freed`](Self::was_freed) follows.
    pub(crate) fn free_on(&self, driver: &Driver, stream: CUstream) -> Outcome {
        // SAFETY: the memory is from the pool, and nothing uses it later than what the stream waits for; the stream is live.
        unsafe { driver.memory_pool_free(self.address as u64, stream) }
    }

    /// Forgets the allocation, because the call that frees it was made.
    pub(crate) fn was_freed(self) {
        core::mem::forget(self);
        COUNTERS.allocations.sub();
    }

    fn free(&self, driver: &Driver) -> Outcome {
        let _entered = self.home.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        match self.kind {
            // SAFETY: the allocation owns the memory and frees it once.
            MemoryKind::Device | MemoryKind::Managed => unsafe { driver.memory_free(self.address as u64) },
            MemoryKind::Pool => self.home.with(driver, |stream| self.free_on(driver, stream.raw))?,
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
        COUNTERS.allocations.sub();
    }
}

/// The kinds of CUDA memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of one device (`cuMemAlloc`).
    Device,
    /// Memory of one device from this crate's stream-ordered pool for it (`cuMemAllocFromPoolAsync`), or as `Device` if the
    /// device has no pools. `cudaIpcGetMemHandle` refuses it, so other processes cannot open it.
    Pool,
    /// Host memory that all devices can reach (`cuMemHostAlloc`, portable).
    Pinned,
    /// Memory that the driver moves between host and devices (`cuMemAllocManaged`).
    Managed,
}
