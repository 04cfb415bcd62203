//! Virtual memory management: a program reserves addresses, creates memory, and maps the memory into the range.
//!
//! A reserved range is one [`Allocation`](crate::memory::Allocation). Only its mapped pieces, which are stored here,
//! can be used. Memory that has a type of handle lies in a file from the start, so that every mapping of it, also in another
//! process, has the same bytes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::handle::Handle;
use crate::shared_memory::{Label, SharedMemory};
use crate::status::{Answer, Status};

/// The granularity of memory sizes, the same on every CUDA device.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the only type of handle.
pub(crate) const DESCRIPTOR: u32 = 1;

/// The memory of one mapping.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    handle: Handle,
    /// The file, if the memory has a type of handle.
    pub(crate) shared: Option<Arc<SharedMemory>>,
    /// Whether devices may write.
    is_writable: bool,
}

/// The memory that was created, and the mappings.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// Each with the number of its handles that were not released.
    made: BTreeMap<Handle, (Piece, u64)>,
    pieces: BTreeMap<u64, Piece>,
    last: Handle,
}

impl Mapped {
    /// Creates memory on a device, without an address.
    pub(crate) fn make(&mut self, bytes: u64, device: usize, types: u32) -> Answer<Handle> {
        if bytes == 0 || bytes % GRANULARITY != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let shared = match types {
            0 => None,
            DESCRIPTOR => Some(SharedMemory::labelled(bytes, Label::Memory { device })?),
            _ => return Err(Status::NOT_SUPPORTED),
        };
        Ok(self.insert(bytes, device, shared))
    }

    fn insert(&mut self, bytes: u64, device: usize, shared: Option<Arc<SharedMemory>>) -> Handle {
        self.last += 1;
        let piece = Piece { bytes, device, handle: self.last, shared, is_writable: true };
        self.made.insert(self.last, (piece, 1));
        self.last
    }

    /// Releases a handle. Mappings of the memory stay valid.
    pub(crate) fn release(&mut self, handle: Handle) -> Answer {
        let (_, handles) = self.made.get_mut(&handle).ok_or(Status::INVALID_VALUE)?;
        *handles -= 1;
        if *handles == 0 {
            self.made.remove(&handle);
        }
        Ok(())
    }

    /// Returns one more handle of the memory that is mapped at an address.
    pub(crate) fn retain(&mut self, address: u64) -> Answer<Handle> {
        let piece = self.piece(address).ok_or(Status::INVALID_VALUE)?.1.clone();
        let handle = piece.handle;
        self.made.entry(handle).or_insert((piece, 0)).1 += 1;
        Ok(handle)
    }

    /// Returns the file of memory with a descriptor for another process.
    pub(crate) fn export(&self, handle: Handle) -> Answer<(Arc<SharedMemory>, OwnedFd)> {
        let (piece, _) = self.made.get(&handle).ok_or(Status::INVALID_VALUE)?;
        let shared = piece.shared.clone().ok_or(Status::INVALID_VALUE)?;
        let descriptor = shared.descriptor()?;
        Ok((shared, descriptor))
    }

    /// Returns a handle of the memory behind a descriptor, and its file.
    pub(crate) fn import(&mut self, descriptor: u64) -> Answer<(Handle, Arc<SharedMemory>)> {
        let (shared, bytes, label) = SharedMemory::of_descriptor(descriptor)?;
        let Label::Memory { device } = label else { return Err(Status::UNKNOWN) };
        Ok((self.insert(bytes, device, Some(shared.clone())), shared))
    }

    /// Maps memory at an address, and returns it.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, handle: Handle) -> Answer<&Piece> {
        let made = self.made.get(&handle).ok_or(Status::INVALID_VALUE)?.0.clone();
        let taken = |(at, piece): (&u64, &Piece)| *at < address + bytes && address < at + piece.bytes;
        if bytes != made.bytes || self.pieces.iter().any(taken) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(self.pieces.entry(address).or_insert(made))
    }

    /// Removes all mappings in a range, and returns them.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Answer<Vec<(u64, Piece)>> {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let inside: Vec<_> = self.pieces.range(address..end).map(|(at, _)| *at).collect();
        if inside.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        Ok(inside.into_iter().filter_map(|at| self.pieces.remove_entry(&at)).collect())
    }

    /// Sets what devices may do with mapped memory.
    pub(crate) fn set_access(&mut self, address: u64, bytes: u64, is_writable: bool) {
        for (_, piece) in self.pieces.range_mut(address..address + bytes) {
            piece.is_writable = is_writable;
        }
    }

    /// Returns the mapping that contains an address, with its first address.
    pub(crate) fn piece(&self, address: u64) -> Option<(u64, &Piece)> {
        let (first, piece) = self.pieces.range(..=address).next_back()?;
        (address - first < piece.bytes).then_some((*first, piece))
    }

    /// Returns the mappings of a range of addresses that has memory throughout, with their first addresses.
    fn pieces_of(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
        let first = self.piece(range.start).map_or(range.start, |(first, _)| first);
        self.pieces.range(first..range.end.max(first)).map(|(first, piece)| (*first, piece))
    }

    /// Returns the memory of a range of addresses that other processes may use too, with its first address and its bytes.
    pub(crate) fn shared(&self, range: Range<u64>) -> Vec<(Arc<SharedMemory>, u64, u64)> {
        let shared = |(first, piece): (u64, &Piece)| Some((piece.shared.clone()?, first, piece.bytes));
        self.pieces_of(range).filter_map(shared).collect()
    }

    /// Returns the first address and the bytes of a mapping of a file.
    pub(crate) fn mapping_of(&self, shared: &Arc<SharedMemory>) -> Option<(u64, u64)> {
        let is_it = |piece: &Piece| piece.shared.as_ref().is_some_and(|other| Arc::ptr_eq(other, shared));
        self.pieces.iter().find(|(_, piece)| is_it(piece)).map(|(first, piece)| (*first, piece.bytes))
    }

    /// Whether devices must not write to a part of a range.
    pub(crate) fn is_read_only(&self, range: Range<u64>) -> bool {
        self.pieces_of(range).any(|(_, piece)| !piece.is_writable)
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
