//! Host allocations with an alignment greater than that of the global allocator.
#![expect(unsafe_code, reason = "allocates memory")]

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, alloc_zeroed, dealloc, realloc};

use crate::error::{Error, Result};

/// Aligned memory from the global allocator.
///
/// The layout has alignment 1 and is larger by `align` bytes; the start is rounded up. With an aligned layout, the
/// system allocator would clear fresh pages again, and `realloc` could not move pages.
pub(crate) struct AlignedMemory {
    base: NonNull<u8>,
    layout: Layout,
    align: usize,
}

// SAFETY: the value owns its memory, as a `Box<[u8]>` does; `&AlignedMemory` gives no access to it.
unsafe impl Send for AlignedMemory {}

// SAFETY: as above.
unsafe impl Sync for AlignedMemory {}

/// The layout of an allocation with `bytes` usable bytes.
fn layout(bytes: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(align)?, 1).ok()
}

impl AlignedMemory {
    /// Whether an allocation of `bytes` bytes fits the address space.
    pub(crate) fn fits(bytes: usize, align: usize) -> bool {
        layout(bytes, align).is_some()
    }

    /// Allocates zeroed memory. The system provides the pages at the first write.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory).
    pub(crate) fn zeroed(bytes: usize, align: usize) -> Result<Self> {
        // SAFETY: the size of the layout is not 0.
        Self::allocated(bytes, align, |layout| unsafe { alloc_zeroed(layout) })
    }

    /// Allocates uninitialized memory.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub(crate) fn uninit(bytes: usize, align: usize) -> Result<Self> {
        // SAFETY: as above.
        Self::allocated(bytes, align, |layout| unsafe { alloc(layout) })
    }

    fn allocated(bytes: usize, align: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Result<Self> {
        let layout = layout(bytes, align).ok_or_else(|| Error::no_memory(bytes))?;
        let base = NonNull::new(allocate(layout)).ok_or_else(|| Error::no_memory(bytes))?;
        let memory = Self { base, layout, align };
        memory.request_large_pages();
        Ok(memory)
    }

    /// The aligned start of the memory.
    pub(crate) fn start(&self) -> *mut u8 {
        let base = self.base.as_ptr();
        base.wrapping_add(base.addr().next_multiple_of(self.align) - base.addr())
    }

    /// Enlarges the memory and keeps its bytes.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed); the memory is then unchanged.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        let layout = layout(bytes, self.align).ok_or_else(|| Error::no_memory(bytes))?;
        let (old_start, old_bytes) =
            (self.start().addr() - self.base.addr().get(), self.layout.size() - self.align);
        // SAFETY: the memory was allocated with `self.layout`; the new size forms a valid layout.
        let base = unsafe { realloc(self.base.as_ptr(), self.layout, layout.size()) };
        (self.base, self.layout) = (NonNull::new(base).ok_or_else(|| Error::no_memory(bytes))?, layout);
        self.request_large_pages();
        if self.start() != base.wrapping_add(old_start) {
            // SAFETY: `old_bytes` bytes from `old_start` on belong to the allocation, and the new start has as many
            // behind it.
            unsafe { self.start().copy_from(base.wrapping_add(old_start), old_bytes) };
        }
        Ok(())
    }

    /// Requests pages of 2 MB for large allocations, as NumPy does. First access then takes half the time. It has no
    /// effect on systems without such pages.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn request_large_pages(&self) {
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
            // SAFETY: the range is within the allocation and starts at a page; the advice changes no byte.
            unsafe { madvise(base.wrapping_add(skipped).cast(), bytes, MADV_HUGEPAGE) };
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn request_large_pages(&self) {}
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
