//! Blocks of host memory at an alignment greater than the allocator's own.
#![expect(unsafe_code, reason = "this room allocates")]

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, alloc_zeroed, dealloc, realloc};

use crate::error::{Error, Result};

/// Memory from the global allocator.
///
/// It is asked for as much more as the alignment takes, at no alignment: asked for an alignment, it would clear memory that
/// is clear anyway, and could not move pages when a block grows.
pub(crate) struct AlignedMemory {
    base: NonNull<u8>,
    layout: Layout,
    align: usize,
}

// SAFETY: the block owns its memory, as a `Box<[u8]>` does; `&AlignedMemory` gives no access to it.
unsafe impl Send for AlignedMemory {}

// SAFETY: as above.
unsafe impl Sync for AlignedMemory {}

/// What is allocated for so many bytes.
fn layout(bytes: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(align)?, 1).ok()
}

impl AlignedMemory {
    /// Whether so many bytes fit the address space.
    pub(crate) fn fits(bytes: usize, align: usize) -> bool {
        layout(bytes, align).is_some()
    }

    /// Zeroed memory; the system gives it when it is written to.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory).
    pub(crate) fn zeroed(bytes: usize, align: usize) -> Result<Self> {
        // SAFETY: the layout has a size.
        Self::allocated(bytes, align, |layout| unsafe { alloc_zeroed(layout) })
    }

    /// Memory that nobody has written.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub(crate) fn unwritten(bytes: usize, align: usize) -> Result<Self> {
        // SAFETY: as above.
        Self::allocated(bytes, align, |layout| unsafe { alloc(layout) })
    }

    fn allocated(bytes: usize, align: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Result<Self> {
        let layout = layout(bytes, align).ok_or_else(|| Error::no_memory(bytes))?;
        let base = NonNull::new(allocate(layout)).ok_or_else(|| Error::no_memory(bytes))?;
        let block = Self { base, layout, align };
        block.ask_for_large_pages();
        Ok(block)
    }

    /// Where the memory begins.
    pub(crate) fn start(&self) -> *mut u8 {
        let base = self.base.as_ptr();
        base.wrapping_add(base.addr().next_multiple_of(self.align) - base.addr())
    }

    /// Makes the block larger; its bytes move with it.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed); the block stays what it is.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        let layout = layout(bytes, self.align).ok_or_else(|| Error::no_memory(bytes))?;
        let (before, kept) = (self.start().addr() - self.base.addr().get(), self.layout.size() - self.align);
        // SAFETY: allocated with that layout; the new size fits one.
        let base = unsafe { realloc(self.base.as_ptr(), self.layout, layout.size()) };
        (self.base, self.layout) = (NonNull::new(base).ok_or_else(|| Error::no_memory(bytes))?, layout);
        self.ask_for_large_pages();
        if self.start() != base.wrapping_add(before) {
            // SAFETY: `kept` bytes from `before` on were those of the block, and there is as much room behind the new start.
            unsafe { self.start().copy_from(base.wrapping_add(before), kept) };
        }
        Ok(())
    }

    /// Asks for pages of 2 MB for what is large, as NumPy does: it is touched in half the time. A system that has none is none
    /// the worse.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn ask_for_large_pages(&self) {
        use core::ffi::{c_int, c_void};

        unsafe extern "C" {
            fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
        }

        const LARGE: usize = 1 << 22;
        const PAGE: usize = 4096;
        const MADV_HUGEPAGE: c_int = 14;
        if self.layout.size() >= LARGE {
            let base = self.base.as_ptr();
            let skipped = base.addr().next_multiple_of(PAGE) - base.addr();
            let bytes = self.layout.size() - skipped;
            // SAFETY: whole pages and the begin of one, all of the block; the advice changes no byte.
            unsafe { madvise(base.wrapping_add(skipped).cast(), bytes, MADV_HUGEPAGE) };
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn ask_for_large_pages(&self) {}
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
