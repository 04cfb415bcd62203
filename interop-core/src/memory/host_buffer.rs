//! Host memory for sharing: aligned to 128 bytes, without Rust references to its elements.
#![expect(unsafe_code, reason = "allocates memory and makes slices of it")]

use core::fmt;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::element::ElementType;
#[cfg(feature = "python")]
use crate::array::info::ArrayInfo;
#[cfg(feature = "python")]
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::error::Result;
use crate::memory::aligned_memory::AlignedMemory;
use crate::memory::borrow_registry;
#[cfg(feature = "python")]
use crate::memory::host::copy::copy_contiguous;
use crate::memory::region::MemoryRegion;
use crate::memory::storage::Storage;
use crate::process::counters;

/// The alignment in bytes: two cache lines. JAX uses an array without a copy from 64 bytes on.
pub(crate) const ALIGN: usize = 128;

/// Zeroed host memory for elements of a type that is known only at run time.
///
/// Its exports are writable, so it never returns a reference to its elements. [`HostVec`](crate::HostVec) does so for
/// `&mut self`.
pub struct HostBuffer {
    pub(crate) memory: AlignedMemory,
    pub(crate) bytes: usize,
    pub(crate) element: ElementType,
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
    /// use interop_core::{DType, HostBuffer, Storage};
    /// let buffer = HostBuffer::zeroed(DType::F32, 12)?;
    /// assert_eq!(buffer.memory().address % 128, 0);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn zeroed(dtype: DType, len: usize) -> Result<Self> {
        Self::of(ElementType::of_whole_bytes(dtype, false)?, len)
    }

    /// As [`zeroed`](Self::zeroed), for an element type that was checked.
    pub(crate) fn of(element: ElementType, len: usize) -> Result<Self> {
        Self::made(element, len, AlignedMemory::zeroed)
    }

    /// Allocates `len` uninitialized elements.
    pub(crate) fn uninit(element: ElementType, len: usize) -> Result<Self> {
        Self::made(element, len, AlignedMemory::uninit)
    }

    fn made(
        element: ElementType,
        len: usize,
        make: fn(usize, usize) -> Result<AlignedMemory>,
    ) -> Result<Self> {
        let bytes = len.checked_mul(element.size);
        let align = ALIGN.max(element.align);
        let bytes =
            bytes.filter(|bytes| AlignedMemory::fits(*bytes, align)).ok_or_else(|| element.too_large(len))?;
        let memory = make(bytes, align)?;
        counters::ALLOCATIONS.add();
        Ok(Self { memory, bytes, element })
    }

    /// Copies the elements that `info` describes into C order.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// # Safety
    ///
    /// The memory that `info` describes is live, initialized, and accessible to the host.
    #[cfg(feature = "python")]
    pub(crate) unsafe fn copy_of(info: &ArrayInfo) -> Result<Self> {
        let element = ElementType::of_whole_bytes(info.dtype(), info.is_padded())?;
        let buffer = Self::uninit(element, info.numel())?;
        let (address, target) = (info.address, buffer.memory.start());
        // SAFETY: the caller guarantees the source; the new buffer has the size of the elements.
        unsafe { copy_contiguous(address, info.layout(), Order::C, element.size, target) };
        Ok(buffer)
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes / self.element.size
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        borrow_registry::forget(self.memory().range);
        counters::ALLOCATIONS.sub();
    }
}

// SAFETY: 1, 2: the heap memory lives until the drop and is initialized before the buffer is shared. 3: it is host
// memory. 4: `&self` gives no references to elements.
unsafe impl Storage for HostBuffer {
    fn memory(&self) -> MemoryRegion {
        let address = self.memory.start().expose_provenance();
        MemoryRegion {
            address,
            range: address..address + self.bytes,
            element: self.element,
            device: Device::CPU,
            mutability: Mutability::Writable,
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} × {})", self.len(), self.element.describe())
    }
}
