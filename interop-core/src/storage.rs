//! What the `data` field of a derived struct can be.
#![expect(unsafe_code, reason = "each storage vouches for its memory in an unsafe impl")]

use core::mem::MaybeUninit;
use core::ops::Range;
use std::sync::Arc;

use crate::arrival::{Arrival, Wanted};
use crate::buffer::HostVec;
use crate::describe::Describe;
use crate::descriptor::Writes;
use crate::device::Device;
use crate::element::{Element, ElementType};
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::facts::Facts;
use crate::gate::Opened;
use crate::host::HostElements;
use crate::import::Import;
use crate::layout::Order;
use crate::record::Record;
use crate::stream::StreamHandle;

/// The memory behind a [`Storage`].
#[derive(Clone, Debug)]
pub struct Memory {
    /// The address of element \[0, …, 0\].
    pub address: usize,
    /// The addresses that belong to the storage.
    pub range: Range<usize>,
    /// The type of the elements.
    pub element: ElementType,
    /// Where the memory is.
    pub device: Device,
    /// Who may write.
    pub writes: Writes,
}

impl Memory {
    /// `len` elements `T` from `address` on.
    #[must_use]
    pub fn new<T: Element>(address: usize, len: usize, device: Device, writes: Writes) -> Self {
        // Memory that exists does not wrap around; a false length is refused when the range is compared.
        let end = address.saturating_add(len.saturating_mul(size_of::<T>()));
        Self { address, range: address..end, element: T::TYPE, device, writes }
    }
}

/// Memory that a derived struct's `#[cuda_array(data)]` field holds.
///
/// Implemented for `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `Arc` of a storage or of a `dyn Storage`, `&[T]`, [`HostVec`](crate::HostVec),
/// [`HostBuffer`](crate::HostBuffer), [`CudaBuffer`](crate::cuda::CudaBuffer), [`Shared`](crate::Shared), the leases
/// [`Lease`](crate::Lease) and [`LeaseMut`](crate::LeaseMut), which hold imported memory, and the buffers in `adapters`.
/// What lends its elements as a slice, such as a memory map, needs no impl: [`Lease::from_owner`](crate::Lease::from_owner).
///
/// # Safety
///
/// 1. All of `memory().range` is live as long as the storage is, and `address` lies within it; of host memory, it is that of a
///    pointer that was exposed, with the right to write if `writes` gives one. All of it is initialized, with one exception: where
///    the element is a struct, the range is elements one behind the other from `address` on, or a whole number of elements before
///    it, and the padding of each (the bytes that are in none of its fields) may hold anything.
/// 2. Moving the storage does not move the memory, and only a method that takes `&mut self` frees or replaces it.
/// 3. `device` is where the memory is.
/// 4. If `writes` is [`Writes::Always`], no plain reference to the elements is ever handed out from `&self`, and `bool` elements
///    are checked wherever they are read, as consumers may leave other bytes; if it is [`Writes::WhenOwned`], no reference
///    outlives a borrow of `self`.
///
/// # Example
///
/// Memory from a C allocator:
///
/// ```
/// use interop_core::{CudaArray, Device, Memory, Storage, Writes};
/// # mod c { use std::alloc::*;
/// # pub fn malloc(n: usize) -> *mut f32 { unsafe { alloc_zeroed(Layout::array::<f32>(n).unwrap()).cast() } }
/// # pub unsafe fn free(p: *mut f32, n: usize) { unsafe { dealloc(p.cast(), Layout::array::<f32>(n).unwrap()) } } }
///
/// struct CBuffer { pointer: *mut f32, len: usize }
///
/// // SAFETY: the buffer is the only one that has the pointer.
/// unsafe impl Send for CBuffer {}
///
/// // SAFETY: 1 and 2: the memory is zeroed by the constructor and lives until `drop`; 3: the host's allocator made it;
/// // 4: there is no method that hands out a reference.
/// unsafe impl Storage for CBuffer {
///     fn memory(&self) -> Memory {
///         Memory::new::<f32>(self.pointer.expose_provenance(), self.len, Device::CPU, Writes::Always)
///     }
/// }
///
/// impl Drop for CBuffer {
///     fn drop(&mut self) {
///         // SAFETY: made by `malloc`, freed once.
///         unsafe { c::free(self.pointer, self.len) }
///     }
/// }
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [rows, 4], export)]
/// struct Table { #[cuda_array(data)] cells: CBuffer, rows: u32 }
///
/// let table = Table { cells: CBuffer { pointer: c::malloc(12), len: 12 }, rows: 3 };
/// assert_eq!(table.facts()?.shape(), [3, 4]);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `data` of a `CudaArray`",
    label = "not memory that an array can be exported from",
    note = "write `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `HostVec<T>`, `Lease<T>` or `LeaseMut<T>` of an array element `T`",
    note = "what lends its elements as a slice, such as a memory map, goes into a `Lease<T>` by `Lease::from_owner`, or into a `LeaseMut<T>`",
    note = "for a raw pointer write `#[cuda_array(data(unsafe_raw))]`; for a type of your own, also around one of another crate, implement `interop_core::Storage`"
)]
#[cfg_attr(
    feature = "ndarray",
    diagnostic::on_unimplemented(
        note = "an array of `ndarray` has axes of its own, and is exported and imported as `interop_core::adapters::ndarray::Nd`, which says how a struct around it is"
    )
)]
pub unsafe trait Storage {
    /// Where the memory is and what it holds.
    fn memory(&self) -> Memory;

    /// The fields of structured elements that no Rust type describes.
    #[inline]
    fn record(&self) -> Option<&Record> {
        None
    }

    /// Where work on the memory is pending, if the storage knows. A struct's `stream` field says it instead.
    #[inline]
    fn stream(&self) -> StreamHandle {
        StreamHandle::NothingPending
    }

    /// The derive's call on the way out.
    #[doc(hidden)]
    #[inline]
    fn describe(&self) -> Describe<'_>
    where
        Self: Sized,
    {
        Describe::storage(self)
    }
}

/// A [`Storage`] that an import can make: by copying the elements, or by holding on to the memory in place.
///
/// ```
/// use interop_core::{FromImport, Lease};
/// assert!(Vec::<f32>::COPIES);
/// assert!(!Lease::<f32>::COPIES);
/// ```
///
/// A storage of your own is made of one of these. One around a lease hands on its [`stream`](Storage::stream) too: work may
/// be pending on memory that is used in place.
///
/// ```
/// use interop_core::{ElementType, Facts, FromImport, Import, Memory, Order, Refused, Storage};
///
/// struct Volts(Vec<f32>);
///
/// // SAFETY: as the vector, of which no more is lent than by the vector itself.
/// unsafe impl Storage for Volts {
///     fn memory(&self) -> Memory {
///         self.0.memory()
///     }
/// }
///
/// impl FromImport for Volts {
///     const COPIES: bool = Vec::<f32>::COPIES;
///
///     fn element() -> Option<ElementType> {
///         Vec::<f32>::element()
///     }
///
///     fn check(facts: &Facts) -> interop_core::Result<()> {
///         Vec::<f32>::check(facts)
///     }
///
///     fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>> {
///         Vec::from_import(import, order).map(Self)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be filled by an import",
    label = "an import cannot make this storage",
    note = "`Vec<T>`, `Box<[T]>`, `Arc<[T]>` and `HostVec<T>` copy an import, `Lease<T>` and `LeaseMut<T>` use it in place",
    note = "for a struct that is only exported write `#[cuda_array(export)]`",
    note = "for a storage of your own implement `interop_core::FromImport`"
)]
pub trait FromImport: Storage + Sized {
    /// Whether the elements are copied, so that the result is compact whatever the strides of the import are.
    const COPIES: bool;

    /// The type of the elements; `None` takes any.
    fn element() -> Option<ElementType>;

    /// Refuses imports that the storage cannot be made from, before anything is taken.
    ///
    /// # Errors
    ///
    /// Such as [`ErrorKind::Device`] for memory that cannot be reached, or [`ErrorKind::ReadOnly`] for a writable lease.
    fn check(facts: &Facts) -> Result<()>;

    /// Makes the storage; compact in `order` if it copies.
    ///
    /// # Errors
    ///
    /// The import comes back with the reason.
    fn from_import(import: Import, order: Order) -> Result<Self, Refused<Import>>;

    /// As [`from_import`](Self::from_import), for an import that is taken where it is; it stays there if it is refused.
    #[doc(hidden)]
    fn take(import: &mut Import, order: Order) -> Result<Self> {
        let taken = core::mem::replace(import, Import::NOTHING);
        Self::from_import(taken, order).map_err(|Refused { value, error }| {
            *import = value;
            error
        })
    }

    /// The derive's call on the way in, before anything is taken.
    #[doc(hidden)]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of `FromArray::assemble`, like the call in it")]
    fn open(from: &mut Arrival<'_>, wanted: Wanted) -> Opened<Self> {
        from.open::<Self>(wanted);
        Opened::new(storage_of::<Self>)
    }
}

/// As [`Arrival::storage`], for an arrival of any lifetime.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the call in `FromArray::assemble`")]
fn storage_of<S: FromImport>(from: &mut Arrival<'_>) -> Option<S> {
    from.storage()
}

/// As `host_memory`, for elements that an export may write: the pointer is exposed with the right to do so.
fn owned_memory<T: Element>(first: *mut T, len: usize) -> Memory {
    Memory::new::<T>(first.expose_provenance(), len, Device::CPU, Writes::WhenOwned)
}

// SAFETY: 1, 2: the elements of a vector live on the heap, and only `&mut self` can move them. 3: host heap. 4: a vector
// lends its elements for a borrow of itself at most.
unsafe impl<T: Element> Storage for Vec<T> {
    fn memory(&self) -> Memory {
        owned_memory(self.as_ptr().cast_mut(), self.len())
    }
}

// SAFETY: as for a vector. Exports move the box as bytes (`MaybeDangling`), so the address stays good.
unsafe impl<T: Element> Storage for Box<[T]> {
    fn memory(&self) -> Memory {
        // The box's own pointer, which may write, and not one that went through a shared reference.
        let elements = &raw const **self;
        owned_memory(elements.cast::<T>().cast_mut(), self.len())
    }
}

// SAFETY: 1, 2: the elements live as long as any of the handles. 3: host heap. 4: nobody may write.
unsafe impl<T: Element> Storage for Arc<[T]> {
    fn memory(&self) -> Memory {
        // The handle's own pointer, and not one that went through a reference to the elements.
        let address = Self::as_ptr(self).cast::<T>().expose_provenance();
        Memory::new::<T>(address, self.len(), Device::CPU, Writes::Never)
    }
}

// SAFETY: 1, 2: borrowed for as long as the slice is there; an export asks for a struct that borrows nothing. 3: host
// memory. 4: nobody may write.
unsafe impl<T: Element> Storage for &[T] {
    fn memory(&self) -> Memory {
        Memory::new::<T>(self.as_ptr().expose_provenance(), self.len(), Device::CPU, Writes::Never)
    }
}

// SAFETY: 1 to 3: as the storage inside, which the handle keeps alive and gives no `&mut` to while others have one.
// 4: whoever has another handle may read what is only writable when owned.
unsafe impl<S: Storage + ?Sized> Storage for Arc<S> {
    fn memory(&self) -> Memory {
        let memory = S::memory(self);
        let writes = if memory.writes == Writes::Always { Writes::Always } else { Writes::Never };
        Memory { writes, ..memory }
    }

    fn record(&self) -> Option<&Record> {
        S::record(self)
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

                fn check(facts: &Facts) -> Result<()> {
                    check_host_copy(facts)
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
    Arc<[T]>, shared_copy;
    HostVec<T>, HostVec::copied;
}

/// A copy that handles share, made in its own memory.
fn shared_copy<T: Element>(elements: &HostElements<T>, order: Order) -> Result<Arc<[T]>> {
    let mut copy = try_shared(elements.count())?;
    let target = Arc::get_mut(&mut copy).map_or_else(|| unreachable!("a new handle"), <[_]>::as_mut_ptr);
    // SAFETY: the memory is new, and has room for the elements.
    unsafe { elements.copy_to(order, target.cast())? };
    // SAFETY: they have been written, and are values of `T`.
    Ok(unsafe { copy.assume_init() })
}

/// Room for this many elements. The standard library ends the program when it cannot allocate an `Arc`, so the same amount
/// is allocated first in a way that can fail, and freed.
fn try_shared<T>(count: usize) -> Result<Arc<[MaybeUninit<T>]>> {
    // The two reference counts stand before the elements, padded to their alignment.
    let bytes = count.saturating_mul(size_of::<T>()).saturating_add(align_of::<T>().max(16));
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(bytes).map_err(|_| Error::no_memory(bytes))?;
    // Otherwise the compiler may remove an allocation that nothing uses, and call it a success.
    drop(core::hint::black_box(room));
    Ok(Arc::new_uninit_slice(count))
}

/// Refuses imports that host code cannot copy.
fn check_host_copy(facts: &Facts) -> Result<()> {
    if facts.device().device_type.is_host_accessible() {
        return Ok(());
    }
    let allowed = "memory that the host can reach, for a copy into host memory";
    let error = Error::new(ErrorKind::Device, "device", facts.device(), allowed);
    Err(error
        .with_advice("`Lease<T>` takes any device")
        .with_remedy("a copy on the host is one, such as `cupy.asnumpy(x)`, or `x.cpu()` in PyTorch"))
}
