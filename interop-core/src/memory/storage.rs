//! What the `data` field of a derived struct can be.
#![expect(unsafe_code, reason = "each storage vouches for its memory in an unsafe impl")]

use crate::array::stream::StreamHandle;
use crate::array::struct_type::StructType;
use crate::memory::info_builder::InfoBuilder;
use crate::memory::region::MemoryRegion;

/// Memory that a derived struct's `#[cuda_array(data)]` field holds.
///
/// Implemented for `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `Arc` of a storage or of a `dyn Storage`, `&[T]`, [`HostVec`](crate::HostVec),
/// [`HostBuffer`](crate::HostBuffer), [`CudaBuffer`](crate::cuda::CudaBuffer), [`SharedBuffer`](crate::SharedBuffer), the leases
/// [`Lease`](crate::Lease) and [`LeaseMut`](crate::LeaseMut), which hold imported memory, and the buffers in `adapters`.
/// What lends its elements as a slice, such as a memory map, needs no impl: [`Lease::from_owner`](crate::memory::lease::Lease::from_owner).
///
/// # Safety
///
/// 1. All of `memory().range` is live as long as the storage is, and `address` lies within it; of host memory, it is that of a
///    pointer that was exposed, with the right to write if `writes` gives one. All of it is initialized, with one exception: where
///    the element is a struct, the range is elements one behind the other from `address` on, or a whole number of elements before
///    it, and the padding of each (the bytes that are in none of its fields) may hold anything.
/// 2. Moving the storage does not move the memory, and only a method that takes `&mut self` frees or replaces it.
/// 3. `device` is where the memory is.
/// 4. If `writes` is [`Mutability::Writable`](crate::Mutability::Writable), no plain reference to the elements is ever handed out from `&self`, and `bool` elements
///    are checked wherever they are read, as consumers may leave other bytes; if it is [`Mutability::WhenOwned`](crate::Mutability::WhenOwned), no reference
///    outlives a borrow of `self`.
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
/// // SAFETY: the buffer is the only one that has the pointer.
/// unsafe impl Send for CBuffer {}
///
/// // SAFETY: 1 and 2: the memory is zeroed by the constructor and lives until `drop`; 3: the host's allocator made it;
/// // 4: there is no method that hands out a reference.
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
    label = "not memory that an array can be exported from",
    note = "write `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `HostVec<T>`, `Lease<T>` or `LeaseMut<T>` of an array element `T`",
    note = "what lends its elements as a slice, such as a memory map, goes into a `Lease<T>` by `Lease::from_owner`, or into a `LeaseMut<T>`",
    note = "for a raw pointer write `#[cuda_array(data(unsafe_raw))]`; for a type of your own, also around one of another crate, implement `interop_core::Storage`"
)]
#[cfg_attr(
    feature = "ndarray",
    diagnostic::on_unimplemented(
        note = "an array of `ndarray` has axes of its own, and is exported and imported as `interop_core::adapters::ndarray::NdArray`, which says how a struct around it is"
    )
)]
pub unsafe trait Storage {
    /// Where the memory is and what it holds.
    fn memory(&self) -> MemoryRegion;

    /// The fields of structured elements that no Rust type describes.
    #[inline]
    fn struct_type(&self) -> Option<&StructType> {
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
    fn describe(&self) -> InfoBuilder<'_>
    where
        Self: Sized,
    {
        InfoBuilder::storage(self)
    }
}

impl<'a> InfoBuilder<'a> {
    /// The `data` field.
    #[inline]
    pub fn storage<S: Storage>(storage: &'a S) -> Self {
        Self::new(storage.memory(), storage.struct_type(), true, storage.stream())
    }
}
