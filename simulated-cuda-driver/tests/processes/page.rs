//! Numbers in a memory file, which both processes map and register.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::*;

const BYTES: usize = 4096;

/// A mapped and registered file of numbers. It stays mapped.
pub(crate) struct Page {
    file: File,
    address: u64,
}

impl Page {
    pub(crate) fn new() -> Self {
        // SAFETY: the name ends with a zero.
        let fd = unsafe { libc::memfd_create(c"numbers".as_ptr(), 0) };
        assert!(fd >= 0, "a memory file");
        // SAFETY: a new descriptor.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(BYTES as u64).expect("room for the numbers");
        Self::map(file)
    }

    /// Opens the file of another process, by its path.
    pub(crate) fn open(path: &str) -> Self {
        Self::map(File::options().read(true).write(true).open(path).expect("the file of the other process"))
    }

    fn map(file: File) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that has these bytes.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let address = at.expose_provenance() as u64;
        ok(cuMemHostRegister_v2(address, BYTES, 3));
        Self { file, address }
    }

    /// The path by which another process opens the file.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    pub(crate) fn number(&self, index: usize) -> u64 {
        self.address + 8 * index as u64
    }

    fn atomic(&self, index: usize) -> &AtomicU64 {
        let at = ptr::with_exposed_provenance(usize::try_from(self.number(index)).expect("64 bits"));
        // SAFETY: within the page, which stays mapped; all use it as an atomic.
        unsafe { &*at }
    }

    pub(crate) fn load(&self, index: usize) -> u64 {
        self.atomic(index).load(Ordering::Acquire)
    }

    /// Writes a number as the host.
    pub(crate) fn store(&self, index: usize, number: u64) {
        self.atomic(index).store(number, Ordering::Release);
    }

    pub(crate) fn close(self) {
        ok(cuMemHostUnregister(self.address));
    }
}
