//! `HostBuffer` and `CudaBuffer`: their imports, whose element type is known only at run time, and the memory of `CudaBuffer`.
#![expect(unsafe_code, reason = "implements `Storage`, and copies memory")]

use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::cuda::block::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::driver::functions::driver;
use crate::driver::stream::PendingWork;
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::copy::device::copy_now;
use crate::memory::copy::transfer::copy_to_buffer;
use crate::memory::extraction::FromImport;
use crate::memory::host::cells::check_readable;
use crate::memory::host_vec::{HostBuffer, HostVec};
use crate::memory::import::Import;
use crate::memory::raw_view::shared_elements;
use crate::memory::std_storage::check_host_copy;
use crate::memory::storage::{MemoryRegion, MemoryState, Storage};
use crate::process::borrow_registry::Borrow;

impl FromImport for HostBuffer {
    const COPIES: bool = true;

    const COPIES_TO_HOST: bool = true;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        check_host_copy(info)?;
        whole_numbers(info).map(drop)
    }

    fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
        copy_to_host(import.info(), order).map_err(|error| Refused::new(import, error))
    }
}

fn copy_to_host(info: &ArrayInfo, order: Order) -> Result<HostBuffer> {
    HostBuffer::check(info)?;
    check_readable(info.work())?;
    let _access = Borrow::from_shared(shared_elements(info), false)?;
    // SAFETY: the memory is live while the import is, the host can access it, and no work is pending on it.
    unsafe { HostBuffer::copy_of(info, order) }
}

impl FromImport for CudaBuffer {
    const COPIES: bool = true;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        whole_numbers(info).map(drop)
    }

    fn from_import(mut import: Import, order: Order) -> Result<Self, Refused<Import>> {
        copy_to_device(&mut import, order).map_err(|error| Refused::new(import, error))
    }
}

fn copy_to_device(import: &mut Import, order: Order) -> Result<CudaBuffer> {
    let (element, ordinal) = (whole_numbers(import.info())?, import.info().device().device_id);
    match copy_to_buffer(import, element, MemoryKind::Pool, order)? {
        Some(buffer) => Ok(buffer),
        None => CudaBuffer::for_elements(MemoryKind::Pool, ordinal, element, 0),
    }
}

/// Returns the element type of an import for memory that has no Rust type.
///
/// # Errors
///
/// [`ErrorKind::DType`] for structs, whose fields the memory would not know, and for types packed below the byte.
fn whole_numbers(info: &ArrayInfo) -> Result<ElementType> {
    match info.struct_type() {
        None => ElementType::from_whole_bytes(info.dtype(), info.is_padded()),
        Some(fields) => {
            let error =
                Error::new(ErrorKind::DType, "dtype", text!("struct {fields}"), "numbers, `bool` or bytes");
            Err(error.with_rust_hint("use `SharedBuffer`, or `Vec<T>` of a struct with `#[derive(Element)]`"))
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
        Ok(MemoryRegion::from_element(
            self.element,
            self.address,
            self.len(),
            self.device,
            Mutability::Writable,
        ))
    }

    // The free of memory of no pool makes the host wait, so an export defers it until the work is done.
    fn state(&self) -> MemoryState<'_> {
        let (uses, release_is_ordered) = (self.uses.as_ref(), self.release_is_ordered());
        MemoryState { uses, release_is_ordered, ..MemoryState::new(PendingWork::UNKNOWN) }
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
        let from = cleared.as_ref().map_or(source, |cleared| cleared.first().expose_provenance());
        // SAFETY: both ranges have `buffer.bytes` bytes and stay live until the copy is complete.
        unsafe { copy_now(driver()?, buffer.context, buffer.address, from, buffer.bytes) }?;
        Ok(buffer)
    }
}
