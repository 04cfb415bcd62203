//! Reserves address space and maps pages.

#![expect(unsafe_code, reason = "the system's call")]

use std::collections::BTreeMap;
use std::ptr;

use crate::status::{Answer, Status};

/// How much address space is reserved at a time.
const CHUNK: u64 = 8 << 30;

/// Address space that faults until a part of it is mapped.
///
/// Addresses are handed out in ascending order. Freed addresses are handed out again only after [`leave`](Self::leave).
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    next: u64,
    end: u64,
    /// Freed addresses for reuse, by the size of their memory.
    spare: BTreeMap<u64, Vec<u64>>,
}

impl Reserve {
    /// Discards the freed addresses, so that they are not reused.
    pub(crate) fn forget(&mut self) {
        self.spare.clear();
    }

    /// Makes the address of freed memory available for the next memory of the same size.
    pub(crate) fn leave(&mut self, address: u64, bytes: u64) {
        self.spare.entry(bytes).or_default().push(address);
    }

    /// Returns an address for `bytes`, followed by a gap so that accesses beyond the end are detected.
    pub(crate) fn take(&mut self, bytes: u64, alignment: u64) -> Answer<u64> {
        if let Some(address) = self.spare.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(address);
        }
        let needed = bytes.checked_next_multiple_of(alignment).and_then(|bytes| bytes.checked_add(alignment));
        let needed = needed.ok_or(Status::OUT_OF_MEMORY)?;
        if self.end - self.next < needed {
            let size = needed.max(CHUNK);
            self.next = map(0, size, libc::PROT_NONE, 0)?;
            self.end = self.next + size;
        }
        let address = self.next;
        self.next += needed;
        Ok(address)
    }
}

/// Maps fresh pages at `address`, or at any address if it is zero.
pub(crate) fn map(address: u64, bytes: u64, protection: i32, flags: i32) -> Answer<u64> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let bytes = usize::try_from(bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
    let place = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: `MAP_FIXED` is passed only for pages of a `Reserve`; only this module maps those.
    let mapped = unsafe { libc::mmap(place, bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        Err(Status::OUT_OF_MEMORY)
    } else {
        Ok(mapped.expose_provenance() as u64)
    }
}
