//! Read-only memory that ends at a page without access.
#![expect(unsafe_code, reason = "pages with and without access are mapped by hand")]

use std::ffi::c_void;
use std::ptr;

/// The number of bytes that can be guarded: more than the largest struct and the longest list of extents.
const ROOM: usize = 4096;

/// One page that is mapped twice: writable for the fuzz target and read-only for the crate, followed by an inaccessible
/// page.
pub(crate) struct Guarded {
    writable: *mut u8,
    shown: *mut u8,
}

impl Guarded {
    /// Maps the pages.
    ///
    /// # Panics
    ///
    /// If the system has no more pages.
    pub(crate) fn new() -> Self {
        // SAFETY: creates a new file in memory; the name ends with a zero.
        let file = unsafe { libc::memfd_create(c"guarded".as_ptr(), 0) };
        assert!(file >= 0, "no file in memory: {}", std::io::Error::last_os_error());
        // SAFETY: the file is our own.
        let sized = unsafe { libc::ftruncate(file, ROOM as libc::off_t) };
        assert_eq!(sized, 0, "{}", std::io::Error::last_os_error());
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let writable = map(ptr::null_mut(), ROOM, both, libc::MAP_SHARED, file);
        // Reserves two inaccessible pages; the next call replaces the first one.
        let shown =
            map(ptr::null_mut(), 2 * ROOM, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        map(shown.cast(), ROOM, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED, file);
        // SAFETY: the file is our own, and its mappings keep it alive.
        unsafe { libc::close(file) };
        Self { writable, shown }
    }

    /// Places bytes so that nothing behind them can be read, and returns the address at which they can be read.
    ///
    /// # Panics
    ///
    /// If the bytes do not fit into a page.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> *mut u8 {
        let start = ROOM.checked_sub(bytes.len()).expect("fewer bytes than a page has");
        let target = self.writable.wrapping_add(start);
        // SAFETY: the target lies within the writable page, to which no reference exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        self.shown.wrapping_add(start)
    }
}

/// Maps `len` bytes.
fn map(at: *mut c_void, len: usize, access: i32, flags: i32, file: i32) -> *mut u8 {
    // SAFETY: creates a new mapping, or replaces pages that are ours and not in use.
    let pages = unsafe { libc::mmap(at, len, access, flags, file, 0) };
    assert_ne!(pages, libc::MAP_FAILED, "no pages: {}", std::io::Error::last_os_error());
    pages.cast()
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.writable.cast(), ROOM) };
        // SAFETY: likewise.
        unsafe { libc::munmap(self.shown.cast(), 2 * ROOM) };
    }
}
