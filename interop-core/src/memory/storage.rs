//! `Storage`, the trait of types that can be the `data` field of a derived struct, and how a description is built from it.
#![expect(unsafe_code, reason = "implements `Storage`")]
#![expect(clippy::inline_always, reason = "checks of constants disappear in the caller")]

use core::ops::Range;

use crate::array::description::Description;
use crate::array::device::Device;
use crate::array::dims::{Dims, signed};
use crate::array::dtype::DType;
use crate::array::element::{Element, ElementType};
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::struct_type::StructType;
use crate::array::validate::{RawDescriptor, Strides};
use crate::error::Result;
use crate::order::array_info::ArrayInfo;
use crate::order::memory_state::StorageState;
use crate::order::placement::Placement;

/// Memory that the `#[cuda_array(data)]` field of a derived struct can hold.
///
/// It is implemented for:
///
/// - `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `&[T]`;
/// - [`HostVec`](crate::HostVec), [`HostBuffer`](crate::storage::HostBuffer), [`CudaBuffer`](crate::cuda::CudaBuffer),
///   [`SharedBuffer`](crate::SharedBuffer);
/// - [`Lease`](crate::Lease) and [`LeaseMut`](crate::LeaseMut), which use foreign memory in place;
/// - [`Borrowed`](crate::lent::Borrowed) and [`BorrowedMut`](crate::lent::BorrowedMut), which use it for the time of a call;
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
///    thread. If `mutability` is [`Mutability::Writable`](crate::storage::Mutability::Writable), no method with `&self` returns a
///    reference to the elements. `bool` elements are then checked before each read, because consumers may write other
///    bytes. If it is [`Mutability::UniqueOwner`](crate::storage::Mutability::UniqueOwner), nothing but borrows of `self` uses the
///    elements as long as `self` exists.
/// 5. If `struct_type` is not `None`, each element has these fields: their bytes are initialized and valid values of
///    their types, and elements have the size of the type in `memory()`. It is the same at every call.
/// 6. The drop, and any method that frees or replaces device memory, waits for all work of the memory's context, or frees it in
///    the order of the stream that [`stream`](Self::stream) returns.
/// 7. While this handle is borrowed mutably, no safe function of another handle uses device memory that is not read-only, or
///    [`is_only_handle`](Self::is_only_handle) returns `false`. The record of this crate tells it of uses by its own functions only.
///
/// # A storage of your own
///
/// [The module `storage`](crate::storage) has a complete one: memory of another allocator, imports that are copied into it, and a
/// kernel on the stream of a caller. Implement:
///
/// 1. `Storage`: [`memory`](Self::memory), and for memory of a GPU [`stream`](Self::stream) if you know it, with
///    [`note_read`](Self::note_read) and [`note_write`](Self::note_write) if your functions are ordered by a record of their own,
///    and [`is_only_handle`](Self::is_only_handle) if the storage can be cloned.
///    [`struct_type`](Self::struct_type) is for struct elements that no Rust type describes. A type that wraps another storage
///    forwards all of these.
/// 2. [`FromImport`](crate::storage::FromImport), if imports fill the storage: in place around a [`Lease`](crate::Lease), or by a
///    copy. [`copy_import`](crate::storage::copy_import()) copies into pinned, managed or device memory of any allocator. Without
///    it, structs with this storage can be exported only. Set its constants where the defaults are wrong.
/// 3. [`BorrowedFor`](crate::lent::BorrowedFor), if the storage copies and functions of TVM FFI or XLA take it as an argument.
///
/// The hidden methods `state`, `memory_unwatched` and `describe`, and in `FromImport` `DATA_FIELD`, `take` and `open`, have defaults
/// that are right for every storage of another crate: they are for memory whose uses this crate follows. Do not implement them.
///
/// # Who calls it, and when
///
/// - `memory` and `stream` are called for each description of the struct: by [`info`](crate::CudaArray::info), a view, a loop, an
///   export. A [`SharedBuffer`](crate::SharedBuffer) calls `memory` once.
/// - An export owns or shares the whole struct. Its last consumer drops it on any thread. So the storage must be `'static` and
///   `Send`, and also `Sync` if the export shares the struct. A raw pointer is neither: declare it by an `unsafe impl`.
/// - For memory of CUDA, that drop comes after the work of the memory's context
///   ([`ReleasePolicy`](crate::cuda::ReleasePolicy)), with that context current. A struct that was not exported is dropped as any
///   Rust value, at once and in any context: so if the memory can be freed in its own context only, the drop makes it current.
/// - A forked process never drops what its parent has exported.
///
/// # Example
///
/// Memory from a C allocator:
///
/// ```
/// use interop_core::storage::{MemoryRegion, Mutability};
/// use interop_core::{CudaArray, Device, Result, Storage};
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
/// // 4: no method returns a reference to it or writes to it; 5: elements are not structs; 6 and 7: no device uses it.
/// unsafe impl Storage for CBuffer {
///     fn memory(&self) -> Result<MemoryRegion> {
///         Ok(MemoryRegion::new::<f32>(self.pointer.expose_provenance(), self.len, Device::CPU, Mutability::Writable))
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
    ///
    /// If you do not know the device, [`cuda::pointer_attributes`](crate::cuda::pointer_attributes()) asks the driver.
    ///
    /// # Errors
    ///
    /// For memory that cannot be described, for example a variant of an `enum` of devices that no protocol knows. The
    /// error is that of every description and export of the struct. Make it by [`Error::new`](crate::Error::new).
    fn memory(&self) -> Result<MemoryRegion>;

    /// The fields of struct elements, if no Rust type describes them (rule 5).
    #[inline]
    fn struct_type(&self) -> Option<&StructType> {
        None
    }

    /// The stream with the last work on the memory. Whoever uses the memory next, on another stream or on the host, waits for
    /// this stream first. It must be live as long as the storage is. A `stream` field of the struct takes precedence.
    ///
    /// - `None`: unknown, so others wait for all work of the memory's context. It is also right for memory of the CPU, on which
    ///   no work is pending.
    /// - [`NothingPending`](StreamHandle::NothingPending): nobody waits, and the host waits at the end of a
    ///   [`LaunchScope`](crate::LaunchScope), so that this stays true.
    /// - A default stream is that of the context that is current where the array is used. If yours may be another one, return a
    ///   stream of its context that synchronizes with the default stream.
    #[inline]
    fn stream(&self) -> Option<StreamHandle> {
        None
    }

    /// Notes that work on `stream` has read the memory, at the end of a [`LaunchScope`](crate::LaunchScope) or of a loan. The
    /// storage's own [`stream`](Self::stream), if it has one, has been made to wait for this work.
    ///
    /// Returns whether the storage's own safe functions come after the work. If not, the host waits for it. By default this is
    /// so if the storage states a stream. A crate whose functions work on several streams, in the order of its own events or
    /// leases, adds the work to them here.
    #[inline]
    fn note_read(&self, stream: StreamHandle) -> bool {
        let _ = stream;
        self.stream().is_some()
    }

    /// As [`note_read`](Self::note_read), for work that has written the memory.
    #[inline]
    fn note_write(&mut self, stream: StreamHandle) -> bool {
        let _ = stream;
        self.stream().is_some()
    }

    /// Whether no other handle has safe functions that use the memory (rule 7). A [`LaunchScope`](crate::LaunchScope) and a loan ask
    /// before they write, and refuse the array if there is one.
    ///
    /// By default it is the only one. In an `Arc` it is that if nobody else has the `Arc`.
    #[inline]
    fn is_only_handle(&mut self) -> bool {
        true
    }

    /// What this crate's own storages know besides the memory.
    #[doc(hidden)]
    #[inline]
    fn state(&self) -> StorageState<'_> {
        let placement = self.stream().map_or(Placement::Unknown, Placement::on);
        StorageState { is_foreign: true, ..StorageState::new(placement) }
    }

    /// As [`memory`](Self::memory), for a description that does not give the address away.
    ///
    /// # Errors
    ///
    /// As [`memory`](Self::memory).
    #[doc(hidden)]
    #[inline]
    fn memory_unwatched(&self) -> Result<MemoryRegion> {
        self.memory()
    }

    /// Describes the memory. Expanded code of the derive macro calls this.
    ///
    /// # Errors
    ///
    /// As [`memory`](Self::memory).
    #[doc(hidden)]
    #[inline]
    fn describe(&self) -> Result<InfoBuilder<'_>>
    where
        Self: Sized,
    {
        let state = self.state();
        Ok(InfoBuilder::new(self.memory_unwatched()?, self.struct_type(), true, state))
    }
}

/// The memory of a [`Storage`](crate::Storage).
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    /// The address of element \[0, …, 0\]. Without elements any address, also 0. For host memory make it by
    /// `expose_provenance`, of the pointer with the most rights: a pointer that comes from a `&[T]` must not be written through.
    pub address: usize,
    /// The address range that belongs to the storage. An array outside of it is refused.
    pub range: Range<usize>,
    /// The element type.
    pub element: ElementType,
    /// The device of the memory.
    pub device: Device,
    /// Who may write. Memory of a device is [`Writable`](Mutability::Writable), because Rust code has no references to it. If
    /// safe functions of your crate copy elements to the host unchecked, `bool` is [`UniqueOwner`](Mutability::UniqueOwner): a
    /// consumer of another export could write a byte that is not a `bool`.
    pub mutability: Mutability,
}

impl MemoryRegion {
    /// Describes `len` elements `T` that start at `address`.
    #[must_use]
    pub fn new<T: Element>(address: usize, len: usize, device: Device, mutability: Mutability) -> Self {
        Self::from_element(T::TYPE, address, len, device, mutability)
    }

    pub(crate) fn from_element(
        element: ElementType,
        address: usize,
        len: usize,
        device: Device,
        mutability: Mutability,
    ) -> Self {
        // Existing memory does not wrap around; a wrong length is rejected when the shape is compared with the range.
        let end = address.saturating_add(len.saturating_mul(element.size));
        Self { address, range: address..end, element, device, mutability }
    }

    /// Describes `len` elements of a type that is known at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) for an invalid type, and for types packed below the byte.
    ///
    /// ```
    /// use interop_core::storage::{MemoryRegion, Mutability};
    /// use interop_core::{DType, Device};
    ///
    /// let region = MemoryRegion::from_dtype("bfloat16".parse()?, 0x1000, 3, Device::cuda(0), Mutability::Writable)?;
    /// assert_eq!((region.range, region.element.dtype()), (0x1000..0x1006, DType::BF16));
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_dtype(
        dtype: DType,
        address: usize,
        len: usize,
        device: Device,
        mutability: Mutability,
    ) -> Result<Self> {
        let element = ElementType::from_whole_bytes(dtype, false)?;
        Ok(Self::from_element(element, address, len, device, mutability))
    }
}

/// Collects the values of a struct's fields. The shape comes last and triggers the check.
///
/// The type has no public name. So expanded code can call the hidden methods of the field traits, but user code cannot
/// override them, and a field cannot substitute other memory.
#[must_use]
pub struct InfoBuilder<'a> {
    pub(crate) memory: MemoryRegion,
    pub(crate) struct_type: Option<&'a StructType>,
    /// Whether `memory.range` is the whole allocation. False for a raw pointer.
    pub(crate) bounded: bool,
    /// The `strides` field. It is a trait object so that later calls do not depend on its type; a wrong type then
    /// causes one error only.
    pub(crate) strides: Option<&'a dyn StridesSource>,
    /// Whether the strides are counted in bytes.
    pub(crate) in_bytes: bool,
    pub(crate) order: Order,
    /// For the whole struct.
    pub(crate) state: StorageState<'a>,
    /// The value of the `stream` field.
    field: Option<StreamHandle>,
}

/// The `strides` field of a struct.
pub(crate) trait StridesSource {
    /// Writes the strides in their place (see `ImportSlot`). Returns `false` if the array is contiguous.
    ///
    /// # Errors
    ///
    /// If a stride does not fit a signed 64-bit integer.
    fn list(&self, to: &mut Dims<i64>) -> Result<bool>;
}

impl<'a> InfoBuilder<'a> {
    #[inline]
    pub(crate) fn new(
        memory: MemoryRegion,
        struct_type: Option<&'a StructType>,
        bounded: bool,
        state: StorageState<'a>,
    ) -> Self {
        Self {
            memory,
            struct_type,
            bounded,
            strides: None,
            in_bytes: false,
            order: Order::C,
            state,
            field: None,
        }
    }

    /// Sets the `strides` field, in elements or in bytes.
    #[inline]
    pub(crate) fn strides(self, strides: &'a dyn StridesSource, in_bytes: bool) -> Self {
        Self { strides: Some(strides), in_bytes, ..self }
    }

    /// Sets the value of the `stream` field, which takes precedence over the storage's stream.
    #[inline]
    pub(crate) fn stream(self, field: Option<StreamHandle>) -> Self {
        Self { field, ..self }
    }

    /// Sets `order = "..."`.
    #[inline]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Declares whether other fields of the struct have a drop. It may need the context of the memory.
    #[inline]
    pub fn with_other_drops(mut self, needs_drop: bool) -> Self {
        self.state.release_is_ordered &= !needs_drop;
        self
    }

    /// Sets `readonly`.
    #[inline]
    pub fn readonly(mut self) -> Self {
        self.memory.mutability = Mutability::ReadOnly;
        self
    }

    /// Sets `shape = [...]` and checks the description.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Overflow`](crate::error::ErrorKind::Overflow) if an extent does not fit a signed 64-bit integer;
    /// otherwise as [`finish`](Self::finish).
    #[inline(always)]
    pub fn extents<const N: usize>(self, extents: [i128; N]) -> Result<ArrayInfo> {
        let mut shape = [0; N];
        for (axis, extent) in extents.into_iter().enumerate() {
            shape[axis] = signed("shape", axis, extent)?;
        }
        self.finish(&shape)
    }

    /// Checks the description with this shape. Inlined, so that a rank that is a constant in the caller unrolls the loops over
    /// axes.
    ///
    /// # Errors
    ///
    /// As [`RawDescriptor::validate`]; [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) if the shape
    /// needs more memory than the storage has.
    #[inline(always)]
    pub(crate) fn finish(self, shape: &[i64]) -> Result<ArrayInfo> {
        let mut list = Dims::zeroed(0);
        let listed = match self.strides {
            None => false,
            Some(strides) => strides.list(&mut list)?,
        };
        let MemoryRegion { address, range, element, device, mutability } = self.memory;
        let descriptor = RawDescriptor {
            address,
            byte_offset: 0,
            dtype: element.dtype,
            padded: element.padded,
            struct_type: self.struct_type,
            shape,
            strides: match listed {
                false => Strides::Contiguous(self.order),
                true if self.in_bytes => Strides::Bytes(&list),
                true => Strides::Elements(&list),
            },
            device: Some(device),
            mutability,
            stream: None,
            memory: self.bounded.then_some(range),
        };
        if element.is_scalar() {
            descriptor.validate_with(self.state, self.field)
        } else {
            let description = with_element_axes(descriptor, element)?;
            Ok(ArrayInfo::new(description, self.state.beside(self.field, device)))
        }
    }
}

/// The description of an array whose element is a struct or has trailing axes, which become axes of the array.
#[cold]
fn with_element_axes(descriptor: RawDescriptor<'_>, element: ElementType) -> Result<Description> {
    let struct_type = element.to_struct_type();
    let descriptor =
        RawDescriptor { struct_type: descriptor.struct_type.or(struct_type.as_ref()), ..descriptor };
    let has_stale_padding = !element.padding().is_empty();
    let with_padding_flag = |description| Description { has_stale_padding, ..description };
    if element.ndim == 0 {
        return descriptor.describe().map(with_padding_flag);
    }
    let layout = descriptor.layout(8 * element.size)?.split_elements(element.axes())?;
    let shape: Vec<i64> = layout.shape().iter().map(|extent| *extent as i64).collect();
    let strides: Vec<i64> = layout.strides().iter().map(|stride| *stride as i64).collect();
    RawDescriptor { shape: &shape, strides: Strides::Elements(&strides), ..descriptor }
        .describe()
        .map(with_padding_flag)
}
