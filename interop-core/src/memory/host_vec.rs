//! Aligned host memory: `HostVec` with a type, `HostBuffer` without.
#![expect(unsafe_code, reason = "lends its memory as slices")]

use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use std::alloc::{alloc, alloc_zeroed, dealloc};

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::error::{Error, Result};
use crate::memory::copy::host::HostArray;
use crate::memory::extraction::FromImport;
use crate::memory::host::cells::{check_bytes, check_readable};
use crate::memory::host::strided::{Strided, with_elements};
use crate::memory::import::Import;
use crate::memory::std_storage::{check_host_copy, copying_storage};
use crate::memory::storage::{MemoryRegion, Storage};
use crate::order::array_info::ArrayInfo;
use crate::order::claim::{Claim, shared_elements};
use crate::order::memory_state::StorageState;
use crate::order::placement::Placement;
use crate::order::record::forget;
use crate::process::counters::COUNTERS;

/// A vector of elements in host memory that is meant to be shared with other libraries.
///
/// The memory is aligned to 128 bytes, so that JAX uses it without a copy. Exports are writable, also if they share the
/// struct. In return, slices of the elements need `&mut self`. An export owns or shares the struct, so no export exists
/// while the struct can be borrowed mutably.
///
/// ```
/// use interop_core::HostVec;
///
/// let mut pixels = HostVec::from([1.0_f32, 2.0, 3.0]);
/// pixels.as_mut_slice()?[0] = 10.0;
/// assert_eq!(pixels.as_mut_slice()?, [10.0, 2.0, 3.0]);
/// assert_eq!(pixels.as_mut_slice()?.as_ptr().addr() % 128, 0);
///
/// let mut ramp: HostVec<f32> = (0..4).map(|at| at as f32).collect();
/// assert_eq!(ramp.as_mut_slice()?, [0.0, 1.0, 2.0, 3.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct HostVec<T> {
    buffer: HostBuffer,
    marker: PhantomData<T>,
}

impl<T: Element> HostVec<T> {
    /// Allocates `len` zeroed elements.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `Overflow` if the size does not fit the address space, `OutOfMemory` if the
    /// allocation fails.
    pub fn try_zeroed(len: usize) -> Result<Self> {
        Ok(Self { buffer: HostBuffer::zeroed_elements(Self::element(), len)?, marker: PhantomData })
    }

    /// Allocates `len` uninitialized elements. The caller writes them before it passes the vector on.
    fn uninit(len: usize) -> Result<Self> {
        Ok(Self { buffer: HostBuffer::uninit(Self::element(), len)?, marker: PhantomData })
    }

    /// The element type with the alignment of `T`, which may be greater.
    const fn element() -> ElementType {
        ElementType { align: align_of::<T>(), ..T::TYPE }
    }

    /// Allocates `len` zeroed elements.
    ///
    /// # Panics
    ///
    /// If the allocation fails.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_from_slice(elements: &[T]) -> Result<Self> {
        let vector = Self::uninit(elements.len())?;
        // SAFETY: the source is a slice of that length; the target is new, of the same length, and aligned for `T`.
        unsafe { vector.first().copy_from_nonoverlapping(elements.as_ptr(), elements.len()) };
        Ok(vector)
    }

    /// Copies these elements and writes zeros into the padding of structs.
    ///
    /// # Errors
    ///
    /// As [`try_zeroed`](Self::try_zeroed).
    pub(crate) fn without_padding(elements: &[T], padding: &[Range<usize>]) -> Result<Self> {
        let vector = Self::try_from_slice(elements)?;
        for at in 0..elements.len() {
            let element = vector.first().wrapping_add(at).cast::<u8>();
            for gap in padding {
                // SAFETY: the bytes lie in one element and belong to no field.
                unsafe { element.wrapping_add(gap.start).write_bytes(0, gap.len()) };
            }
        }
        Ok(vector)
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the elements into this memory order.
    ///
    /// # Errors
    ///
    /// As [`try_zeroed`](Self::try_zeroed), and [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is
    /// not a valid `bool`.
    pub(crate) fn copied(elements: Strided<'_, T>, order: Order) -> Result<Self> {
        let vector = Self::uninit(elements.count())?;
        // SAFETY: the vector is new and has as many elements.
        unsafe { elements.copy_to(order, vector.first())? };
        Ok(vector)
    }

    pub(crate) fn first(&self) -> *mut T {
        self.buffer.start().cast()
    }

    /// Returns the elements for reading and writing. There is no `as_slice` with `&self`, because a consumer of a
    /// shared export may write to the elements. The loops of [`CudaArray`](crate::CudaArray) read them with `&self`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) if a consumer wrote an invalid byte into a `bool` element.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        let (first, len) = (self.first(), self.len());
        // SAFETY: `len` elements are initialized; `&mut self` proves that nobody else has the buffer (rule 4 of
        // `Storage`).
        unsafe { check_bytes(&T::TYPE, first.cast(), len * size_of::<T>())? };
        // SAFETY: as above; the memory is aligned for `T`, and all bytes are valid values.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }
}

copying_storage! { HostVec<T>, |elements, order| Self::copied(elements, order); }

impl<T: Element> From<&[T]> for HostVec<T> {
    /// Copies the elements.
    ///
    /// # Panics
    ///
    /// As [`zeroed`](Self::zeroed).
    fn from(elements: &[T]) -> Self {
        Self::try_from_slice(elements).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<T: Element> From<Vec<T>> for HostVec<T> {
    /// Copies the elements, because a `Vec` has only the alignment of its element type.
    fn from(elements: Vec<T>) -> Self {
        Self::from(&elements[..])
    }
}

impl<T: Element, const N: usize> From<[T; N]> for HostVec<T> {
    fn from(elements: [T; N]) -> Self {
        Self::from(&elements[..])
    }
}

impl<T: Element> FromIterator<T> for HostVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self::from(elements.into_iter().collect::<Vec<T>>())
    }
}

impl<T: Element> Default for HostVec<T> {
    /// Creates an empty vector.
    fn default() -> Self {
        Self::zeroed(0)
    }
}

// SAFETY: as for its buffer; slices need `&mut self`.
unsafe impl<T: Element> Storage for HostVec<T> {
    fn memory(&self) -> Result<MemoryRegion> {
        self.buffer.memory()
    }

    fn state(&self) -> StorageState<'_> {
        self.buffer.state()
    }
}

impl<T> fmt::Debug for HostVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostVec({} × {})", self.buffer.len(), self.buffer.element.describe())
    }
}

/// The alignment in bytes: two cache lines. JAX uses an array without a copy from 64 bytes on.
pub(crate) const ALIGN: usize = 128;

/// Zeroed host memory for elements of a type that is known only at run time.
///
/// Its exports are writable, so it never returns a reference to its elements. [`HostVec`](crate::HostVec) does so for
/// `&mut self`.
pub struct HostBuffer {
    base: NonNull<u8>,
    layout: Layout,
    pub(crate) bytes: usize,
    pub(crate) element: ElementType,
}

// SAFETY: the buffer owns its memory, as a `Box<[u8]>` does; `&HostBuffer` gives no access to it.
unsafe impl Send for HostBuffer {}

// SAFETY: as above.
unsafe impl Sync for HostBuffer {}

/// The number of bytes of the elements, and the layout of their allocation.
///
/// It has alignment 1 and is larger by the alignment of the elements; the start is rounded up. With an aligned layout, the
/// system allocator would clear fresh pages again.
fn allocation(element: &ElementType, len: usize) -> Result<(usize, Layout)> {
    let layout = |bytes: usize| Layout::from_size_align(bytes.checked_add(ALIGN.max(element.align))?, 1).ok();
    let fits = len.checked_mul(element.size).and_then(|bytes| Some((bytes, layout(bytes)?)));
    fits.ok_or_else(|| element.too_large(len))
}

impl HostBuffer {
    /// Allocates `len` zeroed elements of this type.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `Overflow` if the size does not fit the address space, `OutOfMemory` if the
    /// allocation fails, `DType` for an invalid type or a type packed below the byte.
    ///
    /// ```
    /// use interop_core::storage::HostBuffer;
    /// use interop_core::{DType, Storage};
    /// let buffer = HostBuffer::zeroed(DType::F32, 12)?;
    /// assert_eq!(buffer.memory()?.address % 128, 0);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn zeroed(dtype: DType, len: usize) -> Result<Self> {
        Self::zeroed_elements(ElementType::from_whole_bytes(dtype, false)?, len)
    }

    /// As [`zeroed`](Self::zeroed), for an element type that was checked.
    pub(crate) fn zeroed_elements(element: ElementType, len: usize) -> Result<Self> {
        // SAFETY: the size of the layout is not 0.
        Self::allocated(element, len, |layout| unsafe { alloc_zeroed(layout) })
    }

    /// Allocates `len` uninitialized elements.
    pub(crate) fn uninit(element: ElementType, len: usize) -> Result<Self> {
        // SAFETY: as above.
        Self::allocated(element, len, |layout| unsafe { alloc(layout) })
    }

    fn allocated(element: ElementType, len: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Result<Self> {
        let (bytes, layout) = allocation(&element, len)?;
        let base = NonNull::new(allocate(layout)).ok_or_else(|| Error::no_memory(bytes))?;
        let buffer = Self { base, layout, bytes, element };
        buffer.request_large_pages();
        COUNTERS.allocations.add();
        Ok(buffer)
    }

    /// The aligned start of the memory.
    fn start(&self) -> *mut u8 {
        let base = self.base.as_ptr();
        base.wrapping_add(base.addr().next_multiple_of(ALIGN.max(self.element.align)) - base.addr())
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
    #[expect(clippy::unused_self, reason = "the same method as on Linux")]
    fn request_large_pages(&self) {}

    /// Copies the elements that `info` describes, contiguous in `order`.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// # Safety
    ///
    /// The memory that `info` describes is live, initialized, and accessible to the host.
    pub(crate) unsafe fn copy_of(info: &ArrayInfo, order: Order) -> Result<Self> {
        let element = ElementType::from_whole_bytes(info.dtype(), info.is_padded())?;
        let buffer = Self::uninit(element, info.numel())?;
        let array = HostArray::new(info.unwatched_address, info.layout(), &element);
        // SAFETY: the caller guarantees the source; the new buffer has the size of the elements.
        unsafe { array.copy_to(order, buffer.start(), buffer.bytes) }?;
        Ok(buffer)
    }

    /// The exposed address of the first element.
    pub(crate) fn address(&self) -> usize {
        self.start().expose_provenance()
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.bytes / self.element.size
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        let address = self.address();
        forget(address..address + self.bytes);
        COUNTERS.allocations.sub();
        // SAFETY: the memory was allocated with this layout and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl FromImport for HostBuffer {
    const COPIES: bool = true;

    const COPIES_TO_HOST: bool = true;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        check_host_copy(info)?;
        info.scalar_type().map(drop)
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        let info = import.info();
        Self::check(info)?;
        let claim = Claim::by_host(shared_elements(info), false)?;
        check_readable(info.work(), &claim)?;
        // SAFETY: the memory is live while the import is, the host can access it, and no work is pending on it.
        unsafe { Self::copy_of(info, order) }
    }
}

// SAFETY: 1, 2: the heap memory lives until the drop and is initialized before the buffer is shared. 3: it is host
// memory. 4: `&self` gives no references to elements.
unsafe impl Storage for HostBuffer {
    fn memory(&self) -> Result<MemoryRegion> {
        let (address, len) = (self.address(), self.len());
        Ok(MemoryRegion::from_element(self.element, address, len, Device::CPU, Mutability::Writable))
    }

    /// `&HostBuffer` gives no access to the memory, so the record knows who uses it.
    fn state(&self) -> StorageState<'_> {
        StorageState::new(Placement::Unknown)
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} × {})", self.len(), self.element.describe())
    }
}
