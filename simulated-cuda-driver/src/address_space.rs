//! Reserves address space and maps pages, of the system and of files.

#![expect(unsafe_code, reason = "the system's call")]

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
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
        let needed = needed.filter(|needed| *needed < u64::MAX / 4).ok_or(Status::OUT_OF_MEMORY)?;
        if self.end - self.next < needed + alignment {
            let size = (needed + alignment).max(CHUNK);
            self.next = map(0, size, libc::PROT_NONE, 0)?;
            self.end = self.next + size;
        }
        let address = self.next.next_multiple_of(alignment);
        self.next = address + needed;
        Ok(address)
    }
}

/// Maps fresh pages at `address`, or at any address if it is zero.
pub(crate) fn map(address: u64, bytes: u64, protection: i32, flags: i32) -> Answer<u64> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let bytes = usize::try_from(bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
    let place = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: `MAP_FIXED` is passed only for pages of a `Reserve` or a `Window`; only this module maps those.
    let mapped = unsafe { libc::mmap(place, bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        Err(Status::OUT_OF_MEMORY)
    } else {
        Ok(mapped.expose_provenance() as u64)
    }
}

/// The bytes of a reserved range of device addresses, at addresses of the host: its own pages, or those of files.
#[derive(Debug)]
pub(crate) struct Window {
    first: u64,
    bytes: u64,
}

impl Window {
    pub(crate) fn new(bytes: u64) -> Answer<Self> {
        Ok(Self { first: map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?, bytes })
    }

    /// The address on the host of the byte at an offset.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        ptr::with_exposed_provenance_mut((self.first + offset) as usize)
    }

    /// The end of a part, which must be within the window.
    fn end(&self, offset: u64, bytes: u64) -> Answer<u64> {
        offset.checked_add(bytes).filter(|end| *end <= self.bytes).ok_or(Status::INVALID_VALUE)
    }

    /// Gives a part pages of its own again, which a byte fills.
    pub(crate) fn fill(&self, offset: u64, bytes: u64, byte: u8) -> Answer {
        self.end(offset, bytes)?;
        let address = map(self.first + offset, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED)?;
        let count = usize::try_from(bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
        // SAFETY: these pages were just mapped.
        unsafe { ptr::write_bytes(ptr::with_exposed_provenance_mut::<u8>(address as usize), byte, count) };
        Ok(())
    }

    /// Maps the start of a file, which has these bytes, over a part.
    pub(crate) fn show(&self, offset: u64, bytes: u64, file: &impl AsRawFd) -> Answer {
        self.end(offset, bytes)?;
        let count = usize::try_from(bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let place = self.at(offset).cast();
        // SAFETY: the pages are those of this window, and nobody has a reference to them.
        let mapped = unsafe { libc::mmap(place, count, protection, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED { Err(Status::OUT_OF_MEMORY) } else { Ok(()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let count = usize::try_from(self.bytes).unwrap_or(0);
        // SAFETY: the pages belong to this value.
        unsafe { libc::munmap(self.at(0).cast(), count) };
    }
}
