//! The implementation of `Storage` for `CudaBuffer`.
#![expect(unsafe_code, reason = "implements `Storage`")]

use crate::array::element::Element;
use crate::array::mutability::Mutability;
use crate::cuda::allocation::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::cuda::copy::copy_now;
use crate::cuda::driver::driver;
use crate::error::Result;
use crate::memory::host_vec::HostVec;
use crate::memory::region::MemoryRegion;
use crate::memory::storage::Storage;

// SAFETY: 1, 2: the memory is allocated and initialized by the constructors and freed on drop. 3: `device` is where it
// was allocated. 4: `&self` gives no references to elements.
unsafe impl Storage for CudaBuffer {
    fn memory(&self) -> MemoryRegion {
        MemoryRegion {
            address: self.address,
            range: self.address..self.address + self.bytes,
            element: self.element,
            device: self.device,
            mutability: Mutability::Writable,
        }
    }

    // The free of other kinds makes the host wait, so an export defers it until the work is done.
    fn drops_in_order(&self) -> bool {
        self.kind() == MemoryKind::Pool
    }
}

impl CudaBuffer {
    /// Allocates CUDA memory and copies these elements into it. The copy is complete on return.
    ///
    /// Padding between the fields of struct elements is copied as zeros.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    ///
    /// ```no_run
    /// use interop_core::cuda::{CudaBuffer, MemoryKind};
    ///
    /// let buffer = CudaBuffer::from_slice(MemoryKind::Managed, 0, &[1.0_f32, 2.0, 3.0])?;
    /// assert_eq!(buffer.len(), 3);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_slice<T: Element>(kind: MemoryKind, ordinal: i32, elements: &[T]) -> Result<Self> {
        let buffer = Self::for_elements(kind, ordinal, T::TYPE, elements.len())?;
        let padding = T::TYPE.padding();
        // Padding may hold data of other objects, which must not leave the process's own structs.
        let cleared =
            if padding.is_empty() { None } else { Some(HostVec::without_padding(elements, &padding)?) };
        let source = elements.as_ptr().expose_provenance();
        let from = cleared.as_ref().map_or(source, |cleared| cleared.memory().address);
        // SAFETY: both ranges have `buffer.bytes` bytes and stay live until the copy is complete.
        unsafe { copy_now(driver()?, buffer.context, buffer.address, from, buffer.bytes) }?;
        Ok(buffer)
    }
}
