//! Host memory that several processes map: sealed memory files.

#![expect(unsafe_code, reason = "maps files")]

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use interop_core::__private::PerProcess;
use interop_core::{Error, ErrorKind, Result};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::errors::system;

/// A mapping of a whole file.
#[derive(Debug)]
pub(crate) struct Mapping {
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping may be used and removed on any thread. Access to the bytes is up to those who have the address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first bytes of a file that has been checked by [`check`]. Without that, it could shrink, and an access would be a
    /// `SIGBUS`.
    fn new(file: BorrowedFd<'_>, bytes: usize, is_writable: bool) -> Result<Self> {
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the system chooses.
        let first =
            unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) };
        let first = NonNull::new(first.map_err(system("mmap"))?.cast());
        first.map(|first| Self { first, bytes }).ok_or_else(|| system("mmap")(rustix::io::Errno::NOMEM))
    }

    /// Maps a block of another process, after the file that it has sent was checked.
    pub(crate) fn of_other(file: &OwnedFd, bytes: u64, is_writable: bool) -> Result<Self> {
        let bytes = check(file, bytes)?;
        Self::new(file.as_fd(), bytes, is_writable)
    }

    /// The address of the first byte, with the rights of the mapping.
    pub(crate) fn address(&self) -> usize {
        self.first.as_ptr().expose_provenance()
    }

    /// The first byte.
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn range(&self) -> Range<usize> {
        let first = self.first.as_ptr().addr();
        first..first + self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, whose users keep it.
        let unmapped = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of this process");
    }
}

/// Creates a zeroed file in memory that nobody can shrink or grow.
pub(crate) fn new_file(bytes: usize) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"interop-ipc", flags).map_err(system("memfd_create"))?;
    rustix::fs::ftruncate(&file, bytes as u64).map_err(system("ftruncate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(system("F_ADD_SEALS"))?;
    Ok(file)
}

/// Checks that a descriptor of another process is a file in memory with so many bytes that nobody can take away. Returns their
/// number.
fn check(file: &OwnedFd, bytes: u64) -> Result<usize> {
    let refused =
        |found: &str, allowed: &str| Err(Error::new(ErrorKind::OutOfBounds, "parcel.block", found, allowed));
    let Ok(seals) = rustix::fs::fcntl_get_seals(file) else {
        return refused("a descriptor without seals", "a memory file");
    };
    if !seals.contains(SealFlags::SHRINK) {
        return refused("a file that may shrink", "a memory file with F_SEAL_SHRINK");
    }
    let size = rustix::fs::fstat(file).map_err(system("fstat"))?.st_size;
    match usize::try_from(bytes) {
        Ok(wanted) if wanted > 0 && u64::try_from(size).is_ok_and(|size| bytes <= size) => Ok(wanted),
        _ => refused(
            &format!("a file of {size} bytes"),
            &format!("at least the {bytes} bytes of the message, and not none"),
        ),
    }
}

/// Maps a file of this crate that this process has created.
pub(crate) fn map_own(file: &OwnedFd, bytes: usize) -> Result<Mapping> {
    Mapping::new(file.as_fd(), bytes, true)
}

/// Memory of this process that others can map.
#[derive(Debug)]
pub(crate) struct Block {
    mapping: Mapping,
    pub(crate) file: OwnedFd,
    /// Unique in this process.
    pub(crate) id: u64,
}

/// The blocks of this process by address. A forked child has those of its parent: the memory is shared with it.
static BLOCKS: PerProcess<Mutex<BTreeMap<usize, Weak<Block>>>> = PerProcess::new(|of_parent| {
    let known = of_parent.and_then(|blocks| blocks.try_lock().ok().map(|blocks| blocks.clone()));
    Mutex::new(known.unwrap_or_default())
});

impl Block {
    /// Allocates zeroed memory.
    pub(crate) fn new(bytes: usize) -> Result<Arc<Self>> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // The system maps no empty file.
        let bytes = bytes.max(1);
        let file = new_file(bytes)?;
        let block =
            Self { mapping: map_own(&file, bytes)?, file, id: 1 + LAST.fetch_add(1, Ordering::Relaxed) };
        let block = Arc::new(block);
        let mut blocks = BLOCKS.get().lock().unwrap_or_else(PoisonError::into_inner);
        blocks.insert(block.mapping.range().start, Arc::downgrade(&block));
        Ok(block)
    }

    /// Finds the block that contains all of a range.
    pub(crate) fn find(range: &Range<usize>) -> Option<Arc<Self>> {
        let found = {
            let blocks = BLOCKS.get().lock().unwrap_or_else(PoisonError::into_inner);
            blocks.range(..=range.start).next_back()?.1.upgrade()
        };
        // Not under the lock: this may be the last handle by now, whose drop takes the lock.
        found.filter(|block| range.end <= block.mapping.range().end)
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut blocks = BLOCKS.get().lock().unwrap_or_else(PoisonError::into_inner);
        blocks.remove(&self.mapping.range().start);
    }
}
