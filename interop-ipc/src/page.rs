//! The numbers that order two processes: one page of shared memory for each connection.

#![expect(unsafe_code, reason = "numbers in shared memory")]

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;

use interop_core::Result;

use crate::block::{Mapping, map_own, new_file};

/// How many arrays a process can have open from another one at a time.
pub(crate) const SLOTS: u32 = 1024;
const NUMBERS: usize = 2 * SLOTS as usize;
const BYTES: usize = 8 * NUMBERS;

/// Two rows of numbers: the producer's work on an array is done, and the consumer's. Each slot has one of both for the array that
/// is open there. They only increase.
///
/// The numbers are foreign data: only a comparison with a number that this process knows means anything.
#[derive(Debug)]
pub(crate) struct Page(Mapping);

impl Page {
    /// Creates a page, and returns it with its file for the other process.
    pub(crate) fn new() -> Result<(Self, OwnedFd)> {
        let file = new_file(BYTES)?;
        Ok((Self(map_own(&file, BYTES)?), file))
    }

    /// Maps the page of another process.
    pub(crate) fn of_other(file: &OwnedFd) -> Result<Self> {
        Mapping::of_other(file, BYTES as u64, true).map(Self)
    }

    fn number(&self, index: u32) -> &AtomicU64 {
        let index = index as usize;
        assert!(index < NUMBERS, "a number of the page");
        let first = self.0.first().cast::<AtomicU64>();
        // SAFETY: `index` is within the mapping of `BYTES` bytes.
        let number = unsafe { first.add(index) };
        // SAFETY: aligned, because mappings start at pages; mapped as long as `self`; all processes use it as an atomic.
        unsafe { number.as_ref() }
    }

    /// Whether the producer's work with this number is done.
    pub(crate) fn is_ready(&self, slot: u32, number: u64) -> bool {
        self.number(slot).load(Ordering::Acquire) >= number
    }

    pub(crate) fn set_ready(&self, slot: u32, number: u64) {
        self.number(slot).store(number, Ordering::Release);
    }

    /// Whether the consumer's work with this number is done.
    pub(crate) fn is_done(&self, slot: u32, number: u64) -> bool {
        self.number(SLOTS + slot).load(Ordering::Acquire) >= number
    }

    pub(crate) fn set_done(&self, slot: u32, number: u64) {
        self.number(SLOTS + slot).store(number, Ordering::Release);
    }
}
