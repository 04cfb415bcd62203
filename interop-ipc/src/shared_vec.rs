//! `SharedVec`: elements in memory that other processes can map.

#![expect(unsafe_code, reason = "implements `Storage`, and fills the memory")]

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use interop_core::element::ElementType;
use interop_core::lent::BorrowedFor;
use interop_core::storage::{FromImport, MemoryRegion, Mutability, copy_import};
use interop_core::{ArrayInfo, Device, Element, Error, ErrorKind, Import, Order, Result, Storage};

use crate::block::Block;

/// Zeroed elements in host memory that other processes can map: a storage as [`HostVec`](interop_core::HostVec), for the arrays that
/// are to be shared without a copy.
///
/// An import into a struct with this storage copies the elements. Each value is a memory file of its own, of whole pages, and
/// counts as shared memory of the process (`/dev/shm` need not exist).
///
/// ```
/// use interop_core::{CudaArray, Result};
/// use interop_ipc::SharedVec;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [height, width, 3])]
/// struct Image<S = SharedVec<u8>> {
///     #[cuda_array(data)]
///     pixels: S,
///     height: usize,
///     width: usize,
/// }
///
/// let mut image = Image { pixels: SharedVec::<u8>::zeroed(480 * 640 * 3)?, height: 480, width: 640 };
/// image.view_mut::<u8, 3>()?.host_view_mut()?.write([0, 0, 2], 255)?;
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct SharedVec<T> {
    block: Arc<Block>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Element> SharedVec<T> {
    /// Allocates elements whose bytes are zero.
    ///
    /// # Errors
    ///
    /// `Overflow` and `OutOfMemory` for a size that the system does not have; `Unsupported` if it has no memory files.
    pub fn zeroed(len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let Some(bytes) = bytes else {
            return Err(Error::new(ErrorKind::Overflow, "shape", len, "a size that fits the address space"));
        };
        Ok(Self { block: Block::new(bytes)?, len, elements: PhantomData })
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> fmt::Debug for SharedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedVec").field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: 1: the memory is zeroed and mapped for writes until the block is dropped, and its address is exposed; zeros are valid
// for every element. 2: the block is in an `Arc`, and no method replaces it. 3: it is host memory. 4: no method returns a reference
// to the elements or writes to them. 5: no struct type is stated besides that of `T`. 6: no device uses the memory.
unsafe impl<T: Element> Storage for SharedVec<T> {
    fn memory(&self) -> Result<MemoryRegion> {
        let address = self.block.mapping().address();
        Ok(MemoryRegion::new::<T>(address, self.len, Device::CPU, Mutability::Writable))
    }
}

impl<T: Element> FromImport for SharedVec<T> {
    const COPIES: bool = true;
    const COPIES_TO_HOST: bool = true;

    fn element() -> Option<ElementType> {
        Some(T::TYPE)
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        if info.device() == Device::CPU {
            return Ok(());
        }
        let allowed = "host memory (1): copy the array to the host first";
        Err(Error::new(ErrorKind::Device, "device", info.device(), allowed))
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        Self::check(import.info())?;
        let copied = Self::zeroed(import.info().numel() / T::TYPE.axes().iter().product::<usize>())?;
        let target = copied.block.mapping().first().as_ptr().cast();
        // SAFETY: the new memory has room for the elements, and starts at a page; it is host memory, as that of the import.
        unsafe { copy_import::<T>(import, order, target) }?;
        Ok(copied)
    }
}

// SAFETY: a copy, which is complete when `from_import` returns.
unsafe impl<T: Element> BorrowedFor<'_> for SharedVec<T> {}
