//! Memory that ends where nothing may be read, and that is not to be written.
#![expect(unsafe_code, reason = "pages with and without access are mapped by hand")]

use std::ffi::c_void;
use std::ptr;

/// Bytes that can be guarded: more than the largest struct and the longest list of extents.
const ROOM: usize = 4096;

/// One page that is seen twice: writable for us, read-only for the crate, with a page behind it that nobody may touch.
pub(crate) struct Guarded {
    writable: *mut u8,
    shown: *mut u8,
}

impl Guarded {
    /// Maps the pages.
    ///
    /// # Panics
    ///
    /// When the system has none left.
    pub(crate) fn new() -> Self {
        // SAFETY: a new file in memory, with a name that ends.
        let file = unsafe { libc::memfd_create(c"guarded".as_ptr(), 0) };
        assert!(file >= 0, "no file in memory: {}", std::io::Error::last_os_error());
        // SAFETY: our own file.
        let sized = unsafe { libc::ftruncate(file, ROOM as libc::off_t) };
        assert_eq!(sized, 0, "{}", std::io::Error::last_os_error());
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let writable = map(ptr::null_mut(), ROOM, both, libc::MAP_SHARED, file);
        // Two pages without access, of which the first is then replaced.
        let shown =
            map(ptr::null_mut(), 2 * ROOM, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        map(shown.cast(), ROOM, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED, file);
        // SAFETY: our own file, which lives on in its mappings.
        unsafe { libc::close(file) };
        Self { writable, shown }
    }

    /// Puts bytes so that nothing may be read behind them; gives where they can be read.
    ///
    /// # Panics
    ///
    /// When there is no room for so many.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> *mut u8 {
        let start = ROOM.checked_sub(bytes.len()).expect("fewer bytes than a page has");
        let target = self.writable.wrapping_add(start);
        // SAFETY: within the writable page, which nobody refers to.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        self.shown.wrapping_add(start)
    }
}

/// Maps `len` bytes.
fn map(at: *mut c_void, len: usize, access: i32, flags: i32, file: i32) -> *mut u8 {
    // SAFETY: a new mapping, or one over pages that are ours and in use by nobody.
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
