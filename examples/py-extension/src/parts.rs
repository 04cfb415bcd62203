//! The partial sums of blocks: pinned memory that kernels write and the host reads, allocated once for all sums.
#![expect(unsafe_code, reason = "reads what a kernel has written")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice, thread};

use interop_core::Result;
use interop_core::kernel::KernelViewMut;

use crate::launch::Driver;

/// A slot for the partial sums of one running sum.
pub(crate) struct Parts {
    slot: u32,
    address: usize,
}

/// The maximum number of sums that run at the same time. Each has a bit in `TAKEN`.
const SLOTS: u32 = u32::BITS;
static TAKEN: AtomicU32 = AtomicU32::new(0);

impl Parts {
    /// The maximum number of blocks: enough that a device rarely waits long for the last ones. Threads process several
    /// elements if needed.
    pub(crate) const MOST: u32 = 4096;
    const BYTES: usize = Self::MOST as usize * size_of::<f64>();

    /// Takes a free slot. Waits for another sum to finish if all slots are taken.
    pub(crate) fn take(driver: &Driver) -> Result<Self> {
        let memory = memory(driver)?;
        loop {
            let slot = TAKEN.load(Ordering::Relaxed).trailing_ones();
            if slot < SLOTS {
                if TAKEN.fetch_or(1 << slot, Ordering::Acquire) & 1 << slot == 0 {
                    return Ok(Self { slot, address: memory + slot as usize * Self::BYTES });
                }
            } else {
                thread::yield_now();
            }
        }
    }

    /// Returns the argument of a kernel that writes a part for each of so many blocks.
    pub(crate) fn view(&self, blocks: u32) -> KernelViewMut<'_, f64, 1> {
        let parts = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: a slot has room for the parts of the largest launch, and nobody else uses it.
        unsafe { KernelViewMut::from_raw_parts(parts, [blocks.into()], [1]) }
    }

    /// Returns the sum of the parts of the first `blocks` blocks.
    ///
    /// # Safety
    ///
    /// The kernel that wrote the parts is done.
    pub(crate) unsafe fn sum(&self, blocks: u32) -> f64 {
        let parts = ptr::with_exposed_provenance::<f64>(self.address);
        // SAFETY: the parts lie within this slot and are aligned. The caller promises that they are written, and nobody
        // else uses the slot.
        unsafe { slice::from_raw_parts(parts, blocks as usize) }.iter().sum()
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << self.slot), Ordering::Release);
    }
}

/// Returns the memory of all slots.
fn memory(driver: &Driver) -> Result<usize> {
    static MEMORY: Mutex<Option<usize>> = Mutex::new(None);
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(memory) = *memory {
        return Ok(memory);
    }
    Ok(*memory.insert(driver.pinned(SLOTS as usize * Parts::BYTES)?))
}
