//! The storages of the standard library: `Vec`, `Box<[T]>`, `Arc<[T]>`, `&[T]`, and `Arc` around any storage.
#![expect(unsafe_code, reason = "each storage vouches for its memory in an unsafe impl")]

use core::mem::MaybeUninit;
use std::sync::Arc;

use crate::array::device::Device;
use crate::array::element::{Element, ElementType};
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::array::struct_type::StructType;
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::memory::from_import::FromImport;
use crate::memory::host::elements::HostElements;
use crate::memory::host_vec::HostVec;
use crate::memory::import::Import;
use crate::memory::region::MemoryRegion;
use crate::memory::storage::Storage;

/// As `host_memory`, for elements that an export may write: the pointer is exposed with the right to do so.
fn owned_memory<T: Element>(first: *mut T, len: usize) -> MemoryRegion {
    MemoryRegion::new::<T>(first.expose_provenance(), len, Device::CPU, Mutability::WhenOwned)
}

// SAFETY: 1, 2: the elements of a vector live on the heap, and only `&mut self` can move them. 3: host heap. 4: a vector
// lends its elements for a borrow of itself at most.
unsafe impl<T: Element> Storage for Vec<T> {
    fn memory(&self) -> MemoryRegion {
        owned_memory(self.as_ptr().cast_mut(), self.len())
    }
}

// SAFETY: as for a vector. Exports move the box as bytes (`MaybeDangling`), so the address stays good.
unsafe impl<T: Element> Storage for Box<[T]> {
    fn memory(&self) -> MemoryRegion {
        // The box's own pointer, which may write, and not one that went through a shared reference.
        let elements = &raw const **self;
        owned_memory(elements.cast::<T>().cast_mut(), self.len())
    }
}

// SAFETY: 1, 2: the elements live as long as any of the handles. 3: host heap. 4: nobody may write.
unsafe impl<T: Element> Storage for Arc<[T]> {
    fn memory(&self) -> MemoryRegion {
        // The handle's own pointer, and not one that went through a reference to the elements.
        let address = Self::as_ptr(self).cast::<T>().expose_provenance();
        MemoryRegion::new::<T>(address, self.len(), Device::CPU, Mutability::ReadOnly)
    }
}

// SAFETY: 1, 2: borrowed for as long as the slice is there; an export asks for a struct that borrows nothing. 3: host
// memory. 4: nobody may write.
unsafe impl<T: Element> Storage for &[T] {
    fn memory(&self) -> MemoryRegion {
        MemoryRegion::new::<T>(
            self.as_ptr().expose_provenance(),
            self.len(),
            Device::CPU,
            Mutability::ReadOnly,
        )
    }
}

// SAFETY: 1 to 3: as the storage inside, which the handle keeps alive and gives no `&mut` to while others have one.
// 4: whoever has another handle may read what is only writable when owned.
unsafe impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn memory(&self) -> MemoryRegion {
        let memory = S::memory(self);
        let mutability = if memory.mutability == Mutability::Writable {
            Mutability::Writable
        } else {
            Mutability::ReadOnly
        };
        MemoryRegion { mutability, ..memory }
    }

    fn struct_type(&self) -> Option<&StructType> {
        S::struct_type(self)
    }

    fn stream(&self) -> StreamHandle {
        S::stream(self)
    }
}

macro_rules! copied {
    ($($storage:ty, $copy:expr;)*) => {
        $(
            impl<T: Element> FromImport for $storage {
                const COPIES: bool = true;

                fn element() -> Option<ElementType> {
                    Some(T::TYPE)
                }

                fn check(info: &ArrayInfo) -> Result<()> {
                    check_host_copy(info)
                }

                fn from_import(mut import: Import, order: Order) -> Result<Self, Refused<Import>> {
                    Self::take(&mut import, order).map_err(|error| Refused { value: import, error })
                }

                fn take(import: &mut Import, order: Order) -> Result<Self> {
                    let copy: fn(&HostElements<T>, Order) -> Result<Self> = $copy;
                    // SAFETY: nothing of them is kept.
                    copy(&unsafe { import.elements() }?, order)
                }
            }
        )*
    };
}

copied! {
    Vec<T>, HostElements::to_vec;
    Box<[T]>, |elements, order| elements.to_vec(order).map(Vec::into_boxed_slice);
    Arc<[T]>, copy_to_arc;
    HostVec<T>, HostVec::copied;
}

/// A copy that handles share, made in its own memory.
fn copy_to_arc<T: Element>(elements: &HostElements<T>, order: Order) -> Result<Arc<[T]>> {
    let mut copy = try_new_arc(elements.count())?;
    let target = Arc::get_mut(&mut copy).map_or_else(|| unreachable!("a new handle"), <[_]>::as_mut_ptr);
    // SAFETY: the memory is new, and has room for the elements.
    unsafe { elements.copy_to(order, target.cast())? };
    // SAFETY: they have been written, and are values of `T`.
    Ok(unsafe { copy.assume_init() })
}

/// Room for this many elements. The standard library ends the program when it cannot allocate an `Arc`, so the same amount
/// is allocated first in a way that can fail, and freed.
fn try_new_arc<T>(count: usize) -> Result<Arc<[MaybeUninit<T>]>> {
    // The two reference counts stand before the elements, padded to their alignment.
    let bytes = count.saturating_mul(size_of::<T>()).saturating_add(align_of::<T>().max(16));
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(bytes).map_err(|_| Error::no_memory(bytes))?;
    // Otherwise the compiler may remove an allocation that nothing uses, and call it a success.
    drop(core::hint::black_box(room));
    Ok(Arc::new_uninit_slice(count))
}

/// Refuses imports that host code cannot copy.
fn check_host_copy(info: &ArrayInfo) -> Result<()> {
    if info.device().device_type.is_host_accessible() {
        return Ok(());
    }
    let allowed = "memory that the host can reach, for a copy into host memory";
    let error = Error::new(ErrorKind::Device, "device", info.device(), allowed);
    Err(error
        .with_rust_hint("`Lease<T>` takes any device")
        .with_python_hint("a copy on the host is one, such as `cupy.asnumpy(x)`, or `x.cpu()` in PyTorch"))
}
