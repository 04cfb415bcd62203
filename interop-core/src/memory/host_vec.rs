//! `HostVec`: a typed host buffer, made to be shared.
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

/// A vector of elements in host memory that is made to be shared with Python.
///
/// It is aligned to 128 bytes, so that JAX uses it in place, and its exports are writable, also when the struct around it
/// is shared. In return it lends its elements only for `&mut self`. An export owns the struct or shares it, so none lives
/// while the struct can be borrowed mutably.
///
/// ```
/// use interop_core::HostVec;
///
/// let mut pixels = HostVec::from_slice(&[1.0_f32, 2.0, 3.0]);
/// pixels.as_mut_slice()?[0] = 10.0;
/// assert_eq!(pixels.as_slice()?, [10.0, 2.0, 3.0]);
/// assert_eq!(pixels.as_slice()?.as_ptr().addr() % 128, 0);
///
/// let mut ramp: HostVec<f32> = (0..4).map(|at| at as f32).collect();
/// assert_eq!(ramp.as_slice()?, [0.0, 1.0, 2.0, 3.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct HostVec<T> {
    buffer: HostBuffer,
    marker: PhantomData<T>,
}

impl<T: Element> HostVec<T> {
    /// `len` zeroed elements.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `Overflow` when the size does not fit the address space, `MemoryRegion` when there is
    /// not so much memory.
    pub fn try_zeroed(len: usize) -> Result<Self> {
        Ok(Self { buffer: HostBuffer::of(Self::element(), len)?, marker: PhantomData })
    }

    /// `len` elements that nobody has written, and that are written before anybody else has the vector.
    fn unwritten(len: usize) -> Result<Self> {
        Ok(Self { buffer: HostBuffer::unwritten(Self::element(), len)?, marker: PhantomData })
    }

    /// The element with the alignment of the Rust type, which decides.
    const fn element() -> ElementType {
        ElementType { align: align_of::<T>(), ..T::TYPE }
    }

    /// `len` zeroed elements.
    ///
    /// # Panics
    ///
    /// When there is not so much memory.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A copy of these elements.
    ///
    /// # Panics
    ///
    /// As [`zeroed`](Self::zeroed).
    #[must_use]
    pub fn from_slice(elements: &[T]) -> Self {
        let vector = Self::unwritten(elements.len()).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: the source is a slice of that length, the target new, as long, and aligned for `T`.
        unsafe { vector.first().copy_from_nonoverlapping(elements.as_ptr(), elements.len()) };
        vector
    }

    /// A copy of these elements in which the bytes between the fields of structs are 0.
    ///
    /// # Errors
    ///
    /// As [`try_zeroed`](Self::try_zeroed).
    pub(crate) fn without_padding(elements: &[T], padding: &[Range<usize>]) -> Result<Self> {
        let vector = Self::try_zeroed(elements.len())?;
        // SAFETY: as in `from_slice`.
        unsafe { vector.first().copy_from_nonoverlapping(elements.as_ptr(), elements.len()) };
        for at in 0..elements.len() {
            let element = vector.first().wrapping_add(at).cast::<u8>();
            for gap in padding {
                // SAFETY: bytes of one element, which no field takes.
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

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// A copy in this order.
    ///
    /// # Errors
    ///
    /// As [`try_zeroed`](Self::try_zeroed), and [`ErrorKind::DType`](crate::error::ErrorKind::DType) for a byte that is no `bool`.
    pub(crate) fn copied(elements: &HostElements<T>, order: Order) -> Result<Self> {
        let vector = Self::unwritten(elements.count())?;
        // SAFETY: the vector is new, and as long as there are elements.
        unsafe { elements.copy_to(order, vector.first())? };
        Ok(vector)
    }

    /// Room for so many elements more, which nobody has written.
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

    /// The first `len` elements.
    fn cut(mut self, len: usize) -> Self {
        self.buffer.bytes = len * size_of::<T>();
        self
    }

    fn first(&self) -> *mut T {
        self.buffer.memory.start().cast()
    }

    /// The elements, for reading; lent for `&mut self`, because a consumer of a shared export may write them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::error::ErrorKind::DType) when a consumer left a byte that is no `bool` among `bool` elements.
    pub fn as_slice(&mut self) -> Result<&[T]> {
        self.as_mut_slice().map(|elements| &*elements)
    }

    /// The elements, for reading and writing.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        let (first, len) = (self.first(), self.len());
        // SAFETY: `len` initialized elements; `&mut self` says that nobody else has the buffer (rule 4 of `Storage`).
        unsafe { crate::memory::host::checked_read::check_run(first, len)? };
        // SAFETY: as above, aligned for `T`, every bit pattern a value or checked to be one.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, len) })
    }
}

impl<T: Element> From<Vec<T>> for HostVec<T> {
    /// Copies the elements, because a `Vec` is aligned for its element only.
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
        let mut vector = Self::unwritten(least).unwrap_or_else(|error| panic!("{error}"));
        let mut len = 0;
        loop {
            let (first, room) = (vector.first(), vector.len());
            for at in len..room {
                let Some(element) = elements.next() else { return vector.cut(at) };
                // SAFETY: the place of an element that the vector has room for, aligned for `T`.
                unsafe { first.wrapping_add(at).write(element) };
            }
            len = room;
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
    /// No elements.
    fn default() -> Self {
        Self::zeroed(0)
    }
}

// SAFETY: as its buffer; slices are lent for `&mut self` only.
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
