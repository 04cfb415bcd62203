//! Host memory made to be shared: aligned to 128 bytes, and never lent as plain references while it is.
#![expect(unsafe_code, reason = "this room allocates, and lends its memory as slices")]

use core::alloc::Layout as Block;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use std::alloc::{alloc_zeroed, dealloc};

use crate::counters;
use crate::descriptor::Writes;
use crate::device::Device;
use crate::dtype::DType;
use crate::element::{Element, ElementType};
use crate::error::{Error, Result};
#[cfg(feature = "python")]
use crate::facts::Facts;
use crate::host::HostElements;
#[cfg(feature = "python")]
use crate::host::copy_compact;
use crate::layout::Order;
use crate::storage::{Memory, Storage};

/// The alignment of the memory in bytes: two cache lines. JAX uses an array in place from 64 on.
const ALIGN: usize = 128;

/// The allocation for this many bytes of elements; `None` where it does not fit.
fn block(bytes: usize, element: &ElementType) -> Option<Block> {
    Block::from_size_align(bytes.max(1), ALIGN.max(element.align)).ok()
}

/// Zeroed host memory for elements of a type that is known at run time only.
///
/// Exports of it are writable, so it never lends a Rust reference to its elements; [`HostVec`] does, for `&mut self`.
pub struct HostBuffer {
    start: NonNull<u8>,
    bytes: usize,
    element: ElementType,
}

// SAFETY: the buffer owns its memory, as a `Box<[u8]>` does; `&HostBuffer` gives no access to it.
unsafe impl Send for HostBuffer {}
// SAFETY: as above.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// `len` zeroed elements of this type.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `Overflow` when the size does not fit the address space, `Memory` when there is
    /// not so much memory; `DType` for a type that does not exist, and for types packed below the byte.
    ///
    /// ```
    /// use interop_core::{DType, HostBuffer, Storage};
    /// let buffer = HostBuffer::zeroed(DType::F32, 12)?;
    /// assert_eq!(buffer.memory().address % 128, 0);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn zeroed(dtype: DType, len: usize) -> Result<Self> {
        Self::of(ElementType::of_whole_bytes(dtype, false)?, len)
    }

    fn of(element: ElementType, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(element.size);
        let sized = bytes.and_then(|bytes| Some((bytes, block(bytes, &element)?)));
        let (bytes, block) = sized.ok_or_else(|| element.too_large(len))?;
        // SAFETY: the block has a size.
        let start = unsafe { alloc_zeroed(block) };
        let start = NonNull::new(start).ok_or_else(|| Error::no_memory(bytes))?;
        counters::ALLOCATIONS.add();
        Ok(Self { start, bytes, element })
    }

    /// A compact copy, in C order, of the elements that `facts` describe.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// # Safety
    ///
    /// The memory that `facts` describe is live, initialized, and accessible to the host.
    #[cfg(feature = "python")]
    pub(crate) unsafe fn copy_of(facts: &Facts) -> Result<Self> {
        let element = ElementType::of_whole_bytes(facts.dtype(), facts.is_padded())?;
        let buffer = Self::of(element, facts.numel())?;
        let (address, target) = (facts.address(), buffer.start.as_ptr());
        // SAFETY: the source as the caller promises; the buffer is new and has room for the elements.
        unsafe { copy_compact(address, facts.layout(), Order::C, element.size, target) };
        Ok(buffer)
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes / self.element.size
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if let Some(block) = block(self.bytes, &self.element) {
            // SAFETY: allocated with this layout, freed once.
            unsafe { dealloc(self.start.as_ptr(), block) };
        }
        counters::ALLOCATIONS.sub();
    }
}

// SAFETY: 1, 2: zeroed on the heap until the drop. 3: host heap. 4: `&self` lends nothing.
unsafe impl Storage for HostBuffer {
    fn memory(&self) -> Memory {
        let address = self.start.as_ptr().expose_provenance();
        Memory {
            address,
            range: address..address + self.bytes,
            element: self.element,
            device: Device::CPU,
            writes: Writes::Always,
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} × {})", self.len(), self.element.describe())
    }
}

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
    /// By [`ErrorKind`](crate::ErrorKind): `Overflow` when the size does not fit the address space, `Memory` when there is
    /// not so much memory.
    pub fn try_zeroed(len: usize) -> Result<Self> {
        let element = ElementType { align: align_of::<T>(), ..T::TYPE };
        Ok(Self { buffer: HostBuffer::of(element, len)?, marker: PhantomData })
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
        let vector = Self::zeroed(elements.len());
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
    /// As [`try_zeroed`](Self::try_zeroed), and [`ErrorKind::DType`](crate::ErrorKind::DType) for a byte that is no `bool`.
    pub(crate) fn copied(elements: &HostElements<T>, order: Order) -> Result<Self> {
        let vector = Self::try_zeroed(elements.count())?;
        // SAFETY: the vector is new, and as long as there are elements.
        unsafe { elements.copy_to(order, vector.first())? };
        Ok(vector)
    }

    fn first(&self) -> *mut T {
        self.buffer.start.as_ptr().cast()
    }

    /// The elements, for reading; lent for `&mut self`, because a consumer of a shared export may write them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when a consumer left a byte that is no `bool` among `bool` elements.
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
        unsafe { crate::host::check_run(first, len)? };
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
    /// By way of a `Vec`: how many elements there are is known at the end.
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Vec::from_iter(elements).into()
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
    fn memory(&self) -> Memory {
        self.buffer.memory()
    }
}

impl<T> fmt::Debug for HostVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostVec({} × {})", self.buffer.len(), self.buffer.element.describe())
    }
}
