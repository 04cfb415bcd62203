//! How memory that was allocated here goes back to the driver.

use core::ptr::with_exposed_provenance_mut;
use std::sync::OnceLock;

use super::context::{Context, Relaxed};
use super::driver::{Driver, Outcome, driver};
use super::memory::{MemoryKind, on_a_stream};
use crate::counters;

/// Allocated memory, freed by its drop.
pub(super) struct Block {
    pub(super) address: usize,
    pub(super) kind: MemoryKind,
    pub(super) context: Context,
}

impl Block {
    fn free(&self, driver: &Driver) -> Outcome {
        let _entered = self.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        match self.kind {
            // SAFETY: the block's own memory, freed once.
            MemoryKind::Device | MemoryKind::Managed => unsafe { driver.memory_free(self.address as u64) },
            MemoryKind::Pool => {
                // SAFETY: as above; the stream is live.
                on_a_stream(driver, |stream| unsafe { driver.memory_pool_free(self.address as u64, stream) })
            }
            // SAFETY: as above.
            MemoryKind::Pinned => unsafe {
                driver.memory_host_free(with_exposed_provenance_mut(self.address))
            },
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            let free = || {
                // A context that is gone took the memory with it.
                let _ = self.free(driver);
            };
            // A pool takes it back without a wait.
            if self.kind == MemoryKind::Pool { free() } else { without_locks(free) }
        }
        counters::ALLOCATIONS.sub();
    }
}

/// Runs a closure that may wait for a device.
static WAIT: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// Runs what waits for the work of a device, as the driver does before it frees: without a lock that this work may need.
pub(crate) fn without_locks(run: impl FnOnce()) {
    let Some(wait) = WAIT.get() else { return run() };
    let mut run = Some(run);
    wait(&mut || run.take().map_or((), |run| run()));
}

/// Lets `wait` run everything that may wait for a device, such as the freeing of memory: it first gives up whatever lock the
/// work on the device may need.
#[cfg(any(feature = "python", feature = "counters"))]
pub fn free_inside(wait: fn(&mut dyn FnMut())) {
    // The first one stays.
    let _ = WAIT.set(wait);
}
