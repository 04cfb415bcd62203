//! The storages of the standard library: `Vec`, `Box<[T]>`, `Arc<[T]>`, `&[T]`, and `Arc` of any storage.
#![expect(unsafe_code, reason = "implements `Storage`")]

use core::mem::MaybeUninit;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::struct_type::StructType;
use crate::error::{Cure, Error, ErrorKind, Result};
use crate::memory::extraction::FromImport;
use crate::memory::host::strided::{Strided, with_elements};
use crate::memory::import::Import;
use crate::memory::storage::{MemoryRegion, Storage};
use crate::order::array_info::ArrayInfo;
use crate::order::memory_state::StorageState;

/// Describes host memory, and exposes the pointer, which has write permission if elements may be written.
fn host_memory<T: Element>(first: *const T, len: usize, mutability: Mutability) -> MemoryRegion {
    MemoryRegion::new::<T>(first.expose_provenance(), len, Device::CPU, mutability)
}

// SAFETY: 1, 2: the elements live on the heap, and only `&mut self` can move them. 3: it is host memory. 4: no
// reference to elements outlives a borrow of the vector.
unsafe impl<T: Element> Storage for Vec<T> {
    fn memory(&self) -> Result<MemoryRegion> {
        Ok(host_memory(self.as_ptr(), self.len(), Mutability::UniqueOwner))
    }
}

// SAFETY: as for a vector. Exports move the box as bytes (`MaybeDangling`), so the address stays valid.
unsafe impl<T: Element> Storage for Box<[T]> {
    fn memory(&self) -> Result<MemoryRegion> {
        // Use the box's own pointer, which may write; one through a shared reference may not.
        let elements = &raw const **self;
        Ok(host_memory(elements.cast::<T>(), self.len(), Mutability::UniqueOwner))
    }
}

// SAFETY: 1, 2: the elements live as long as any handle. 3: it is host memory. 4: the memory is read-only.
unsafe impl<T: Element> Storage for Arc<[T]> {
    fn memory(&self) -> Result<MemoryRegion> {
        // Use the handle's own pointer, whose provenance is not limited to a borrow of the elements.
        Ok(host_memory(Self::as_ptr(self).cast::<T>(), self.len(), Mutability::ReadOnly))
    }
}

// SAFETY: 1, 2: the slice is borrowed while it exists; an export needs a `'static` struct. 3: it is host memory. 4: the
// memory is read-only.
unsafe impl<T: Element> Storage for &[T] {
    fn memory(&self) -> Result<MemoryRegion> {
        Ok(host_memory(self.as_ptr(), self.len(), Mutability::ReadOnly))
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

    fn is_only_handle(&mut self) -> bool {
        Arc::get_mut(self).is_some_and(S::is_only_handle)
    }

    fn state(&self) -> StorageState<'_> {
        S::state(self)
    }
}

/// Describes memory that several handles share.
fn shared(memory: MemoryRegion) -> MemoryRegion {
    match memory.mutability {
        Mutability::Writable => memory,
        _ => MemoryRegion { mutability: Mutability::ReadOnly, ..memory },
    }
}

impl<S: FromImport> FromImport for Arc<S> {
    const COPIES: bool = S::COPIES;

    const IS_FREED_ON_DEFAULT_STREAM: bool = S::IS_FREED_ON_DEFAULT_STREAM;

    const COPIES_TO_HOST: bool = S::COPIES_TO_HOST;

    const WRITES: bool = S::WRITES;

    fn element() -> Option<ElementType> {
        S::element()
    }

    fn check(info: &ArrayInfo) -> Result<()> {
        S::check(info)
    }

    fn from_import(import: &mut Import, order: Order) -> Result<Self> {
        S::from_import(import, order).map(Self::new)
    }
}

/// Fills storages by a copy into memory of the host.
macro_rules! copying_storage {
    ($($storage:ty, $copy:expr;)*) => {
        $(
            impl<T: Element> FromImport for $storage {
                const COPIES: bool = true;

                const COPIES_TO_HOST: bool = true;

                fn element() -> Option<ElementType> {
                    Some(T::TYPE)
                }

                fn check(info: &ArrayInfo) -> Result<()> {
                    check_host_copy(info)
                }

                fn from_import(import: &mut Import, order: Order) -> Result<Self> {
                    let copy: fn(Strided<'_, T>, Order) -> Result<Self> = $copy;
                    // SAFETY: the memory is live while the import is.
                    unsafe { with_elements(&import.info, false, |elements| copy(elements, order)) }
                }
            }
        )*
    };
}

pub(crate) use copying_storage;

copying_storage! {
    Vec<T>, |elements, order| elements.to_vec(order);
    Box<[T]>, |elements, order| elements.to_vec(order).map(Vec::into_boxed_slice);
    Arc<[T]>, copy_to_arc;
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
pub(crate) fn check_host_copy(info: &ArrayInfo) -> Result<()> {
    if info.device().device_type.is_host_accessible() {
        return Ok(());
    }
    let allowed = "memory that the host can reach, for a copy into host memory";
    let error = Error::new(ErrorKind::Device, "device", info.device(), allowed);
    Err(error.with_rust_hint("use `Lease<T>` for memory of any device").with_python_hint(Cure::ToHost))
}
