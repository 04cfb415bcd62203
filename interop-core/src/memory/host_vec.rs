//! `HostVec`: a typed host buffer for sharing.
#![expect(unsafe_code, reason = "lends its memory as slices")]

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::error::Result;
use crate::memory::aligned_memory::AlignedMemory;
use crate::memory::host::elements::HostElements;
use crate::memory::host_buffer::{ALIGN, HostBuffer};
use crate::memory::region::MemoryRegion;
use crate::memory::storage::Storage;

/// A vector of elements in host memory that is meant to be shared with other libraries.
///
/// The memory is aligned to 128 bytes, so that JAX uses it without a copy. Exports are writable, also if they share the
/// struct. In return, slices of the elements need `&mut self`. An export owns or shares the struct, so no export exists
/// while the struct can be borrowed mutably.
///
/// ```
/// use interop_core::HostVec;
///
/// let mut pixels = HostVec::from_slice(&[1.0_f32, 2.0, 3.0]);
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
        Ok(Self { buffer: HostBuffer::of(Self::element(), len)?, marker: PhantomData })
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

    /// Copies these elements.
    ///
    /// # Panics
    ///
    /// As [`zeroed`](Self::zeroed).
    #[must_use]
    pub fn from_slice(elements: &[T]) -> Self {
        Self::try_from_slice(elements).unwrap_or_else(|error| panic!("{error}"))
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
        self.buffer.is_empty()
    }

    /// Copies the elements into this memory order.
    ///
    /// # Errors
    ///
    /// As [`try_zeroed`](Self::try_zeroed), and [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is
    /// not a valid `bool`.
    pub(crate) fn copied(elements: &HostElements<T>, order: Order) -> Result<Self> {
        let vector = Self::uninit(elements.count())?;
        // SAFETY: the vector is new and has as many elements.
        unsafe { elements.copy_to(order, vector.first())? };
        Ok(vector)
    }

    /// Enlarges the memory by `more` uninitialized elements.
    fn grow(&mut self, more: usize) -> Result<()> {
        let len = self.len().saturating_add(more);
        let bytes = len.checked_mul(size_of::<T>());
        let align = ALIGN.max(align_of::<T>());
        let bytes =
            bytes.filter(|bytes| AlignedMemory::fits(*bytes, align)).ok_or_else(|| T::TYPE.too_large(len))?;
        self.buffer.memory.grow(bytes)?;
        self.buffer.bytes = bytes;
        Ok(())
    }

    /// Keeps the first `len` elements.
    fn truncated(mut self, len: usize) -> Self {
        self.buffer.bytes = len * size_of::<T>();
        self
    }

    fn first(&self) -> *mut T {
        self.buffer.memory.start().cast()
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
        unsafe { crate::memory::host::checked_read::check_run(first, len)? };
        // SAFETY: as above; the memory is aligned for `T`, and all bytes are valid values.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }

    /// The elements as a `Vec`: a copy, because a `Vec` frees memory that is aligned for its element only.
    ///
    /// # Errors
    ///
    /// As [`as_mut_slice`](Self::as_mut_slice).
    ///
    /// ```
    /// use interop_core::HostVec;
    ///
    /// assert_eq!(HostVec::from_slice(&[1_u8, 2, 3]).into_vec()?, [1, 2, 3]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn into_vec(mut self) -> Result<Vec<T>> {
        Ok(self.as_mut_slice()?.to_vec())
    }
}

impl<T: Element> From<Vec<T>> for HostVec<T> {
    /// Copies the elements, because a `Vec` has only the alignment of its element type.
    fn from(elements: Vec<T>) -> Self {
        Self::from_slice(&elements)
    }
}

impl<T: Element, const N: usize> From<[T; N]> for HostVec<T> {
    fn from(elements: [T; N]) -> Self {
        Self::from_slice(&elements)
    }
}

impl<T: Element> FromIterator<T> for HostVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        let (least, _) = elements.size_hint();
        let mut vector = Self::uninit(least).unwrap_or_else(|error| panic!("{error}"));
        let mut len = 0;
        loop {
            let (first, capacity) = (vector.first(), vector.len());
            for at in len..capacity {
                let Some(element) = elements.next() else { return vector.truncated(at) };
                // SAFETY: the element lies within the capacity and is aligned for `T`.
                unsafe { first.wrapping_add(at).write(element) };
            }
            len = capacity;
            let Some(element) = elements.next() else { return vector };
            let more = elements.size_hint().0.saturating_add(1).max(len);
            vector.grow(more.max(4)).unwrap_or_else(|error| panic!("{error}"));
            // SAFETY: as above.
            unsafe { vector.first().wrapping_add(len).write(element) };
            len += 1;
        }
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
    fn memory(&self) -> MemoryRegion {
        self.buffer.memory()
    }
}

impl<T> fmt::Debug for HostVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostVec({} × {})", self.buffer.len(), self.buffer.element.describe())
    }
}
