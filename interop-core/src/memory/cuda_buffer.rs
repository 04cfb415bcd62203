//! `CudaBuffer` as a storage.
#![expect(unsafe_code, reason = "vouches for its memory in an unsafe impl")]

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

// SAFETY: 1, 2: allocated, and written once by whoever made it, until the drop. 3: as it was allocated. 4: `&self` lends nothing.
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
}

impl CudaBuffer {
    /// A copy of these elements, complete on return.
    ///
    /// The padding of structs, the bytes between their fields, is copied as zeros.
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
        // What lies between the fields of a struct may be left over from other data, which is nobody else's business.
        let cleared =
            if padding.is_empty() { None } else { Some(HostVec::without_padding(elements, &padding)?) };
        let plain = elements.as_ptr().expose_provenance();
        let from = cleared.as_ref().map_or(plain, |cleared| cleared.memory().address);
        // SAFETY: as many bytes on both sides, both live until the copy is waited for.
        unsafe { copy_now(driver()?, buffer.context, buffer.address, from, buffer.bytes) }?;
        Ok(buffer)
    }
}
