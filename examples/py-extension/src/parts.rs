//! The sums of blocks: pinned memory that kernels write and the host reads, allocated once for all sums.
#![expect(unsafe_code, reason = "reads what a kernel has written")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{ptr, slice, thread};

use interop_core::Result;

use crate::launch::Driver;

/// Room for the parts of one sum, of those that are under way at a time.
pub(crate) struct Parts {
    slot: u32,
    address: usize,
}

/// How many sums may be under way, a bit each in `TAKEN`.
const SLOTS: u32 = u32::BITS;
static TAKEN: AtomicU32 = AtomicU32::new(0);

impl Parts {
    /// Blocks at most: so many that few devices wait long for the last ones. Each thread does as many elements as it takes.
    pub(crate) const MOST: u32 = 4096;
    const BYTES: usize = Self::MOST as usize * size_of::<f64>();

    /// Room that nobody else has. Waits for one of the other sums where there are more than slots.
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

    /// Where kernels write the part of the first block.
    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    /// The sum of the parts of so many blocks.
    ///
    /// # Safety
    ///
    /// The kernel that wrote them is done.
    pub(crate) unsafe fn sum(&self, blocks: u32) -> f64 {
        let parts = ptr::with_exposed_provenance::<f64>(self.address);
        // SAFETY: within this slot, aligned, and written, as the caller promises; nobody else has it.
        unsafe { slice::from_raw_parts(parts, blocks as usize) }.iter().sum()
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << self.slot), Ordering::Release);
    }
}

/// The memory of all slots.
fn memory(driver: &Driver) -> Result<usize> {
    static MEMORY: Mutex<Option<usize>> = Mutex::new(None);
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(memory) = *memory {
        return Ok(memory);
    }
    Ok(*memory.insert(driver.pinned(SLOTS as usize * Parts::BYTES)?))
}
