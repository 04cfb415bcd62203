//! The storages of the standard library: `Vec`, `Box<[T]>`, `Arc<[T]>`, `&[T]`, `Arc` of any storage; and
//! `CudaBuffer`.
#![expect(unsafe_code, reason = "implements `Storage`")]

use core::mem::MaybeUninit;
use std::sync::Arc;

use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::struct_type::StructType;
use crate::cuda::block::MemoryKind;
use crate::cuda::buffer::CudaBuffer;
use crate::driver::device::Device;
use crate::driver::functions::driver;
use crate::driver::stream_handle::{PendingWork, StreamHandle};
use crate::error::{Cure, Error, ErrorKind, Refused, Result, text};
use crate::memory::copy::device::copy_now;
use crate::memory::copy::transfer::copy_import;
use crate::memory::from_import::{DataField, FromImport};
use crate::memory::host::cells::check_readable;
use crate::memory::host::strided::{Strided, with_elements};
use crate::memory::host_vec::{HostBuffer, HostVec};
use crate::memory::import::Import;
use crate::memory::raw_view::shared_range;
use crate::memory::storage::{MemoryRegion, MemoryState, Storage};
use crate::process::borrow_registry::Borrow;

/// Memory that a sole owner may write. The pointer with write permission is exposed.
fn owned_memory<T: Element>(first: *mut T, len: usize) -> MemoryRegion {
    MemoryRegion::new::<T>(first.expose_provenance(), len, Device::CPU, Mutability::UniqueOwner)
}

// SAFETY: 1, 2: the elements live on the heap, and only `&mut self` can move them. 3: it is host memory. 4: no
// reference to elements outlives a borrow of the vector.
unsafe impl<T: Element> Storage for Vec<T> {
    fn memory(&self) -> Result<MemoryRegion> {
        Ok(owned_memory(self.as_ptr().cast_mut(), self.len()))
    }
}

// SAFETY: as for a vector. Exports move the box as bytes (`MaybeDangling`), so the address stays valid.
unsafe impl<T: Element> Storage for Box<[T]> {
    fn memory(&self) -> Result<MemoryRegion> {
        // Use the box's own pointer, which may write; one through a shared reference may not.
        let elements = &raw const **self;
        Ok(owned_memory(elements.cast::<T>().cast_mut(), self.len()))
    }
}

// SAFETY: 1, 2: the elements live as long as any handle. 3: it is host memory. 4: the memory is read-only.
unsafe impl<T: Element> Storage for Arc<[T]> {
    fn memory(&self) -> Result<MemoryRegion> {
        // Use the handle's own pointer, whose provenance is not limited to a borrow of the elements.
        let address = Self::as_ptr(self).cast::<T>().expose_provenance();
        Ok(MemoryRegion::new::<T>(address, self.len(), Device::CPU, Mutability::ReadOnly))
    }
}

// SAFETY: 1, 2: the slice is borrowed while it exists; an export needs a `'static` struct. 3: it is host memory. 4: the
// memory is read-only.
unsafe impl<T: Element> Storage for &[T] {
    fn memory(&self) -> Result<MemoryRegion> {
        Ok(MemoryRegion::new::<T>(
            self.as_ptr().expose_provenance(),
            self.len(),
            Device::CPU,
            Mutability::ReadOnly,
        ))
    }
}

// SAFETY: 1 to 3 and 5: as for the inner storage, which the handle keeps alive and lends as `&mut` only if it is unique.
// 4: `UniqueOwner` memory becomes read-only, because other handles may read it.
unsafe impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn memory(&self) -> Result<MemoryRegion> {
        S::memory(self).map(shared)
    }

    fn memory_unwatched(&self) -> Result<MemoryRegion> {
        S::memory_unwatched(self).map(shared)
    }

    fn struct_type(&self) -> Option<&StructType> {
        S::struct_type(self)
    }

    fn stream(&self) -> Option<StreamHandle> {
        S::stream(self)
    }

    fn note_read(&self, stream: StreamHandle) -> bool {
        S::note_read(self, stream)
    }

    // Other handles may use the storage now, so the host waits instead.
    fn note_write(&mut self, stream: StreamHandle) -> bool {
        Arc::get_mut(self).is_some_and(|storage| storage.note_write(stream))
    }

    fn state(&self) -> MemoryState<'_> {
        MemoryState { has_one_handle: false, ..S::state(self) }
    }
}

/// Describes memory that several handles share.
fn shared(memory: MemoryRegion) -> MemoryRegion {
    match memory.mutability {
        Mutability::Writable => memory,
        _ => MemoryRegion { mutability: Mutability::ReadOnly, ..memory },
    }
}

impl FromImport for HostBuffer {
    const COPIES: bool = true;

    const ON_HOST: bool = true;

    fn element() -> Option<ElementType> {
        None
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        check_host_copy(info)?;
        whole_numbers(info).map(drop)
    }

    fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
        copied_to_host(import.info(), order).map_err(|error| Refused::new(import, error))
    }
}

fn copied_to_host(info: &ArrayInfo, order: Order) -> Result<HostBuffer> {
    HostBuffer::check(info)?;
    check_readable(info.work())?;
    let _access = Borrow::from_shared(shared_range(info), false)?;
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
        copied_to_device(&mut import, order).map_err(|error| Refused::new(import, error))
    }
}

fn copied_to_device(import: &mut Import, order: Order) -> Result<CudaBuffer> {
    let (element, ordinal) = (whole_numbers(import.info())?, import.info().device().device_id);
    match copy_import(import, element, MemoryKind::Pool, order)? {
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

impl<S: FromImport> FromImport for Arc<S> {
    const COPIES: bool = S::COPIES;

    const IS_FREED_ON_DEFAULT_STREAM: bool = S::IS_FREED_ON_DEFAULT_STREAM;

    const ON_HOST: bool = S::ON_HOST;

    const DATA_FIELD: DataField = S::DATA_FIELD;

    fn element() -> Option<ElementType> {
        S::element()
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        S::check(info)
    }

    fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
        S::from_import(import, order).map(Self::new)
    }

    fn take(import: &mut Import, order: Order) -> Result<Self> {
        S::take(import, order).map(Self::new)
    }
}

macro_rules! copying_storage {
    ($($storage:ty, $copy:expr;)*) => {
        $(
            impl<T: Element> FromImport for $storage {
                const COPIES: bool = true;

                const ON_HOST: bool = true;

                fn element() -> Option<ElementType> {
                    Some(T::TYPE)
                }

                fn check(info: &ArrayInfo) -> Result<()> {
                    check_host_copy(info)
                }

                fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
                    let copy: fn(Strided<'_, T>, Order) -> Result<Self> = $copy;
                    // SAFETY: the memory is live while the import is.
                    let copied = unsafe { with_elements(&import.info, false, |elements| copy(elements, order)) };
                    copied.map_err(|error| Refused::new(import, error))
                }
            }
        )*
    };
}

copying_storage! {
    Vec<T>, |elements, order| elements.to_vec(order);
    Box<[T]>, |elements, order| elements.to_vec(order).map(Vec::into_boxed_slice);
    Arc<[T]>, copy_to_arc;
    HostVec<T>, |elements, order| Self::copied(elements, order);
}

/// Copies the elements directly into the memory of a new `Arc`.
fn copy_to_arc<T: Element>(elements: Strided<'_, T>, order: Order) -> Result<Arc<[T]>> {
    let mut copy = try_new_arc(elements.count())?;
    let target = Arc::get_mut(&mut copy).map_or_else(|| unreachable!("a new handle"), <[_]>::as_mut_ptr);
    // SAFETY: the memory is new and has space for the elements.
    unsafe { elements.copy_to(order, target.cast())? };
    // SAFETY: all elements have been written and are valid values of `T`.
    Ok(unsafe { copy.assume_init() })
}

/// Allocates an `Arc` for this many elements. `Arc` aborts the program if its allocation fails, so the same size is
/// first allocated and freed in a way that can fail.
fn try_new_arc<T>(count: usize) -> Result<Arc<[MaybeUninit<T>]>> {
    // The two reference counts precede the elements and are padded to their alignment.
    let bytes = count.saturating_mul(size_of::<T>()).saturating_add(align_of::<T>().max(16));
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes).map_err(|_| Error::no_memory(bytes))?;
    // Without `black_box` the compiler may remove the unused allocation and assume that it succeeds.
    drop(core::hint::black_box(probe));
    Ok(Arc::new_uninit_slice(count))
}

/// Returns an error for an import whose elements host code cannot copy.
fn check_host_copy(info: &ArrayInfo) -> Result<()> {
    if info.device().device_type.is_host_accessible() {
        return Ok(());
    }
    let allowed = "memory that the host can reach, for a copy into host memory";
    let error = Error::new(ErrorKind::Device, "device", info.device(), allowed);
    Err(error.with_rust_hint("use `Lease<T>` for memory of any device").with_python_hint(Cure::ToHost))
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
        let (uses, drops_in_order) = (self.uses.as_ref(), self.drops_in_order());
        MemoryState { uses, drops_in_order, ..MemoryState::new(PendingWork::UNKNOWN) }
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
