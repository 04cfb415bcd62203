//! Host memory made to be shared: aligned to 128 bytes, and never lent as plain references while it is.
#![expect(unsafe_code, reason = "this room allocates, and lends its memory as slices")]

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

/// The alignment of the memory in bytes: two cache lines. JAX uses an array in place from 64 on.
pub(crate) const ALIGN: usize = 128;

/// Zeroed host memory for elements of a type that is known at run time only.
///
/// Exports of it are writable, so it never lends a Rust reference to its elements; [`HostVec`](crate::HostVec) does, for `&mut self`.
pub struct HostBuffer {
    pub(crate) memory: AlignedMemory,
    pub(crate) bytes: usize,
    pub(crate) element: ElementType,
}

impl HostBuffer {
    /// `len` zeroed elements of this type.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`](crate::ErrorKind): `Overflow` when the size does not fit the address space, `MemoryRegion` when there is
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

    pub(crate) fn of(element: ElementType, len: usize) -> Result<Self> {
        Self::made(element, len, AlignedMemory::zeroed)
    }

    /// `len` elements that nobody has written.
    pub(crate) fn unwritten(element: ElementType, len: usize) -> Result<Self> {
        Self::made(element, len, AlignedMemory::unwritten)
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

    /// A compact copy, in C order, of the elements that `info` describe.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// # Safety
    ///
    /// The memory that `info` describe is live, initialized, and accessible to the host.
    #[cfg(feature = "python")]
    pub(crate) unsafe fn copy_of(info: &ArrayInfo) -> Result<Self> {
        let element = ElementType::of_whole_bytes(info.dtype(), info.is_padded())?;
        let buffer = Self::unwritten(element, info.numel())?;
        let (address, target) = (info.address(), buffer.memory.start());
        // SAFETY: the source as the caller promises; the buffer is new and has room for the elements.
        unsafe { copy_contiguous(address, info.layout(), Order::C, element.size, target) };
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
        borrow_registry::forget(self.memory().range);
        counters::ALLOCATIONS.sub();
    }
}

// SAFETY: 1, 2: on the heap until the drop, zeroed or written before anybody else has the buffer. 3: host heap. 4: `&self` lends nothing.
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
