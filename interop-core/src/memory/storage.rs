//! The trait of types that can be the `data` field of a derived struct.
#![expect(unsafe_code, reason = "implements `Storage`")]

use crate::array::stream::{PendingWork, StreamHandle};
use crate::array::struct_type::StructType;
use crate::array::use_record::UseRecord;
use crate::memory::info_builder::InfoBuilder;
use crate::memory::region::MemoryRegion;

/// Memory that the `#[cuda_array(data)]` field of a derived struct can hold.
///
/// It is implemented for:
///
/// - `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `&[T]`;
/// - [`HostVec`](crate::HostVec), [`HostBuffer`](crate::HostBuffer), [`CudaBuffer`](crate::cuda::CudaBuffer),
///   [`SharedBuffer`](crate::SharedBuffer);
/// - [`Lease`](crate::Lease) and [`LeaseMut`](crate::LeaseMut), which use foreign memory in place;
/// - `Arc` of a storage or of a `dyn Storage`, and the buffers in `adapters`.
///
/// A type that implements `AsRef<[T]>`, such as a memory map, needs no implementation: use
/// [`Lease::from_owner`](crate::memory::lease::Lease::from_owner).
///
/// # Safety
///
/// 1. All of `memory().range` is live as long as the storage is, and `address` lies within it. For host memory, the
///    provenance of `address` has been exposed, with write permission if `mutability` allows writes. All bytes are
///    initialized, except the padding of struct elements. For struct elements, the range consists of whole elements,
///    counted from `address` in both directions.
/// 2. Moving the storage does not move the memory. Only methods that take `&mut self` free or replace the memory.
/// 3. `device` is the device of the memory.
/// 4. No method with `&self` writes to the elements, because a view that borrows the storage may read them on another
///    thread. If `mutability` is [`Mutability::Writable`](crate::Mutability::Writable), no method with `&self` returns a
///    reference to the elements. `bool` elements are then checked before each read, because consumers may write other
///    bytes. If it is [`Mutability::WhenOwned`](crate::Mutability::WhenOwned), nothing but borrows of `self` uses the
///    elements as long as `self` exists.
/// 5. If `struct_type` is not `None`, each element has these fields: their bytes are initialized and valid values of
///    their types, and elements have the size of the type in `memory()`. It is the same at every call.
///
/// # Example
///
/// Memory from a C allocator:
///
/// ```
/// use interop_core::{CudaArray, Device, MemoryRegion, Storage, Mutability};
/// # mod c { use std::alloc::*;
/// # pub fn malloc(n: usize) -> *mut f32 { unsafe { alloc_zeroed(Layout::array::<f32>(n).unwrap()).cast() } }
/// # pub unsafe fn free(p: *mut f32, n: usize) { unsafe { dealloc(p.cast(), Layout::array::<f32>(n).unwrap()) } } }
///
/// struct CBuffer { pointer: *mut f32, len: usize }
///
/// // SAFETY: nothing else has the pointer.
/// unsafe impl Send for CBuffer {}
///
/// // SAFETY: 1 and 2: the memory is zeroed by the constructor and lives until `drop`; 3: it is host memory;
/// // 4: no method returns a reference to it or writes to it; 5: elements are not structs.
/// unsafe impl Storage for CBuffer {
///     fn memory(&self) -> MemoryRegion {
///         MemoryRegion::new::<f32>(self.pointer.expose_provenance(), self.len, Device::CPU, Mutability::Writable)
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
/// assert_eq!(table.info()?.shape(), [3, 4]);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the `data` of a `CudaArray`",
    label = "this type does not implement `Storage`",
    note = "write `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `HostVec<T>`, `Lease<T>` or `LeaseMut<T>` of an array element `T`",
    note = "for a type with `AsRef<[T]>`, such as a memory map, write `Lease<T>` and make it with `Lease::from_owner`; with `AsMut<[T]>` write `LeaseMut<T>`",
    note = "for `&mut [T]` move the owner of the slice into the struct, as `Vec<T>`, `HostVec<T>` or `LeaseMut<T>`",
    note = "for a raw pointer write `#[cuda_array(data(unsafe_raw))]`; for a type of your own, also around one of another crate, implement `interop_core::Storage`"
)]
#[cfg_attr(
    not(feature = "ndarray"),
    diagnostic::on_unimplemented(
        note = "an array of `ndarray` 0.17 needs no struct: enable the feature `ndarray` of `interop-core` and call `NdArray(array).into_dlpack()`"
    )
)]
#[cfg_attr(
    feature = "ndarray",
    diagnostic::on_unimplemented(
        note = "an array of `ndarray` 0.17 needs no struct: call `NdArray(array).into_dlpack()` (`interop_core::adapters::ndarray`, which also shows a struct with such an array among its fields)"
    )
)]
pub unsafe trait Storage {
    /// The location and element type of the memory.
    fn memory(&self) -> MemoryRegion;

    /// The fields of struct elements, if no Rust type describes them (rule 5).
    #[inline]
    fn struct_type(&self) -> Option<&StructType> {
        None
    }

    /// The stream with pending work on the memory. `None` if the storage does not know it: then exports of CUDA memory
    /// wait for all work of the memory's context. A `stream` field of the struct takes precedence.
    #[inline]
    fn stream(&self) -> Option<StreamHandle> {
        None
    }

    /// As [`stream`](Self::stream). A default stream is resolved only when it is used, because its name may mean
    /// another stream on another thread.
    #[doc(hidden)]
    #[inline]
    fn pending(&self) -> PendingWork {
        self.stream().map_or(PendingWork::UNKNOWN, PendingWork::on)
    }

    /// As [`memory`](Self::memory), for a description that does not give the address away.
    #[doc(hidden)]
    #[inline]
    fn region(&self) -> MemoryRegion {
        self.memory()
    }

    /// The record of an import on its caller's stream, for a storage whose [`region`](Self::region) notes no use.
    #[doc(hidden)]
    #[inline]
    fn uses(&self) -> Option<UseRecord> {
        None
    }

    /// Whether the drop is itself ordered after the work on the memory, and needs no context, as that of an import. An
    /// export then orders nothing of its own.
    #[doc(hidden)]
    #[inline]
    fn drops_in_order(&self) -> bool {
        false
    }

    /// Describes the memory. Expanded code of the derive macro calls this.
    #[doc(hidden)]
    #[inline]
    fn describe(&self) -> InfoBuilder<'_>
    where
        Self: Sized,
    {
        InfoBuilder::storage(self)
    }
}

impl<'a> InfoBuilder<'a> {
    /// Starts a description with the `data` field.
    #[inline]
    pub fn storage<S: Storage>(storage: &'a S) -> Self {
        let (drops_in_order, uses) = (storage.drops_in_order(), storage.uses());
        let described = Self::new(storage.region(), storage.struct_type(), true, storage.pending());
        Self { drops_in_order, uses, ..described }
    }
}
