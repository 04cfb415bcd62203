//! Virtual memory management: a program reserves addresses, creates memory, and maps the memory into the range.
//!
//! A reserved range is one [`Allocation`](crate::memory::Allocation). Only its mapped pieces, which are stored here,
//! can be used.

use std::collections::BTreeMap;

use crate::state::Handle;
use crate::status::{Answer, Status};

/// The granularity of memory sizes, the same on every CUDA device.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// The memory of one mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
}

/// The memory that was created, and the mappings.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    made: BTreeMap<Handle, Piece>,
    pieces: BTreeMap<u64, Piece>,
    last: Handle,
}

impl Mapped {
    /// Creates memory on a device, without an address.
    pub(crate) fn make(&mut self, bytes: u64, device: usize) -> Answer<Handle> {
        if bytes == 0 || bytes % GRANULARITY != 0 {
            return Err(Status::INVALID_VALUE);
        }
        self.last += 1;
        self.made.insert(self.last, Piece { bytes, device });
        Ok(self.last)
    }

    /// Releases memory. Its mappings stay valid.
    pub(crate) fn release(&mut self, handle: Handle) -> Answer {
        self.made.remove(&handle).map(drop).ok_or(Status::INVALID_VALUE)
    }

    /// Maps memory at an address.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, handle: Handle) -> Answer {
        let made = *self.made.get(&handle).ok_or(Status::INVALID_VALUE)?;
        let taken = |(at, piece): (&u64, &Piece)| *at < address + bytes && address < at + piece.bytes;
        if bytes != made.bytes || self.pieces.iter().any(taken) {
            return Err(Status::INVALID_VALUE);
        }
        self.pieces.insert(address, made);
        Ok(())
    }

    /// Removes all mappings in a range.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Answer {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let inside: Vec<_> = self.pieces.range(address..end).map(|(at, _)| *at).collect();
        if inside.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        for at in inside {
            self.pieces.remove(&at);
        }
        Ok(())
    }

    /// Returns the mapping that contains an address, with its first address.
    pub(crate) fn piece(&self, address: u64) -> Option<(u64, Piece)> {
        let (first, piece) = self.pieces.range(..=address).next_back()?;
        (address - first < piece.bytes).then_some((*first, *piece))
    }

    /// Whether memory is mapped at any of these addresses, which belong to one reserved range.
    pub(crate) fn touches(&self, address: u64, bytes: u64) -> bool {
        self.pieces.range(address..address + bytes).next().is_some()
    }

    /// Whether memory is mapped at all of these addresses.
    pub(crate) fn covers(&self, address: u64, bytes: u64) -> bool {
        let (mut at, end) = (address, address.saturating_add(bytes));
        while at < end {
            let Some((first, piece)) = self.piece(at) else { return false };
            at = first + piece.bytes;
        }
        true
    }
}
