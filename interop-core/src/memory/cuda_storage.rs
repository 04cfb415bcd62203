//! `CudaBuffer` as a storage, its imports, and its copies of Rust slices.
#![expect(unsafe_code, reason = "implements `Storage`, and copies memory")]

use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::driver::functions::driver;
use crate::error::Result;
use crate::memory::copy::device::copy_now;
use crate::memory::copy::transfer::copy_to_buffer;
use crate::memory::cuda_buffer::CudaBuffer;
use crate::memory::extraction::FromImport;
use crate::memory::host_vec::HostVec;
use crate::memory::import::Import;
use crate::memory::storage::{MemoryRegion, Storage};
use crate::order::array_info::ArrayInfo;
use crate::order::block::MemoryKind;
use crate::order::memory_state::StorageState;
use crate::order::placement::Placement;

impl FromImport for CudaBuffer {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        info.scalar_type().map(drop)
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        let (element, ordinal) = (import.info().scalar_type()?, import.info().device().device_id);
        match copy_to_buffer(import, element, MemoryKind::Pool, order)? {
            Some(buffer) => Ok(buffer),
            None => Self::for_elements(MemoryKind::Pool, ordinal, element, 0),
        }
    }
}

// SAFETY: 1, 2: the memory is allocated and initialized by the constructors and freed on drop. 3: `device` is where it
// was allocated. 4: `&self` gives no references to elements.
unsafe impl Storage for CudaBuffer {
    fn memory(&self) -> Result<MemoryRegion> {
        if let Some(uses) = &self.uses {
            uses.note_unknown();
        }
        self.memory_unwatched()
    }

    fn memory_unwatched(&self) -> Result<MemoryRegion> {
        let Self { address, element, device, .. } = *self;
        Ok(MemoryRegion::from_element(element, address, self.len(), device, Mutability::Writable))
    }

    // The free of memory of no pool makes the host wait, so an export defers it until the work is done.
    fn state(&self) -> StorageState<'_> {
        let (uses, release_is_ordered) = (self.uses.as_ref(), self.release_is_ordered());
        let has_own_work = self.has_own_work;
        StorageState { uses, has_own_work, release_is_ordered, ..StorageState::new(Placement::Unknown) }
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
        let copy =
            if padding.is_empty() { None } else { Some(HostVec::without_padding(elements, &padding)?) };
        let source = elements.as_ptr().expose_provenance();
        let from = copy.as_ref().map_or(source, |copy| copy.first().expose_provenance());
        // SAFETY: both ranges have `buffer.bytes` bytes and stay live until the copy is complete.
        unsafe { copy_now(driver()?, buffer.home.context, buffer.address, from, buffer.bytes) }?;
        Ok(buffer)
    }
}
