//! DLPack exports: one allocation for the C struct, shape, strides and owner.

use core::alloc::Layout as AllocLayout;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::mutability::Mutability;
use crate::driver::reach::{Handle, InReach, Reach, contain_panic};
use crate::error::{Error, ErrorKind, Refused, Result, text};
#[cfg(feature = "python")]
use crate::memory::cuda_buffer::CudaBuffer;
#[cfg(feature = "python")]
use crate::memory::host_vec::HostBuffer;
use crate::memory::maybe_dangling::MaybeDangling;
use crate::order::array_info::ArrayInfo;
use crate::order::memory_check::reach_of;
use crate::order::release::owner::Owner;
use crate::process::counters::COUNTERS;
use crate::protocols::dlpack::abi::{
    DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, TensorAbi,
};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;

/// Who else has the exported array. This decides whether a consumer may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Nobody else has the array.
    Owned,
    /// The array is shared, for example with Rust code that reads it.
    Shared,
    /// Nobody else has the array; it is a copy made for this export (`DLPACK_FLAG_BITMASK_IS_COPIED`).
    Copied,
}

impl Ownership {
    /// Whether a consumer may write to this array.
    #[inline]
    fn may_write(self, info: &ArrayInfo) -> bool {
        match self {
            Self::Shared => info.mutability() == Mutability::Writable,
            Self::Owned | Self::Copied => info.is_writable_by_owner(),
        }
    }
}

/// The start of the allocation. `2 * ndim` numbers, the shape and the strides, follow it.
#[repr(C)]
struct Allocation<A, O> {
    managed: A,
    /// At most 64. As a `u8`, it cannot make the size of the allocation overflow.
    ndim: u8,
    /// Whether the capsule with the tensor is dropped, and no consumer took it.
    is_unconsumed: bool,
    /// The work that the release must come after, for memory that devices use.
    reach: Option<Reach>,
    owner: MaybeDangling<O>,
}

/// Exports the array that `info` describes as a managed tensor that owns `owner`.
///
/// `byte_offset` is 0, and `data` is the address of the first element, or null without elements. Strides are written
/// unless the array has no axes. A struct element of equal fields becomes a trailing axis.
///
/// # Errors
///
/// The owner is returned with the reason:
///
/// - [`ErrorKind::ReadOnly`] for a read-only array in a [`Legacy`](crate::protocols::dlpack::abi::Legacy) tensor, which
///   cannot express that.
/// - [`ErrorKind::Unsupported`] for padded sub-byte elements in a `Legacy` tensor.
/// - [`ErrorKind::DType`] for struct elements with different fields.
/// - [`ErrorKind::Rank`] or [`ErrorKind::Overflow`] if the trailing axis of struct elements does not fit.
/// - [`ErrorKind::Device`] if the device is unknown or not supported.
///
/// # Safety
///
/// 1. Until `owner` is dropped, the memory in the [`byte_range`](ArrayInfo::byte_range) of `info` is live and
///    initialized, and any thread may use it. For host memory, the provenance of the address has been exposed.
/// 2. `ownership` is correct. If writes are allowed, no Rust reference to the memory exists until `owner` is dropped.
///    Writes are allowed if `info.mutability()` is [`Writable`](Mutability::Writable), or if it is
///    [`UniqueOwner`](Mutability::UniqueOwner) and `ownership` is not [`Shared`](Ownership::Shared).
/// 3. The memory is not in a `Box` in `owner`, because `owner` is moved and a move of a `Box` invalidates pointers into
///    it. A `Vec` or an `Arc` is fine. Export a struct around a `Box` by
///    [`into_dlpack`](crate::derive::cuda_array::CudaArray::into_dlpack), which describes it in its place.
///
/// ```
/// use interop_core::protocols::dlpack::{Ownership, Versioned, export};
/// use interop_core::protocols::RawDescriptor;
/// use interop_core::{CudaArray, DType, Device, FromArray, Lease};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: Lease<f32>, len: usize }
///
/// let mut memory = vec![1.0_f32, 2.0, 3.0];
/// let address = memory.as_mut_ptr().expose_provenance();
/// let info = RawDescriptor { dtype: DType::F32, ..RawDescriptor::new(address, Device::CPU, &[3]) }.validate()?;
/// // SAFETY: 1: the vector owns the memory, its pointer was exposed, and any thread may use it. 2: only the export owns
/// // the vector. 3: the memory is in a vector.
/// let tensor = unsafe { export::<Versioned, _>(&info, memory, Ownership::Owned) }?;
/// assert_eq!(Samples::from_dlpack(tensor)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[inline]
pub unsafe fn export<A: TensorAbi, O: Send + 'static>(
    info: &ArrayInfo,
    owner: O,
    ownership: Ownership,
) -> Result<ManagedTensor<A>, Refused<O>> {
    // SAFETY: as the caller promises.
    let exported = unsafe { export_kept(info, ExportedValue::<_, false>(owner), ownership) };
    exported.map_err(|Refused { value, error }| Refused::new(value.0, error))
}

/// As [`export`], for an owner that may adapt its reach.
///
/// # Safety
///
/// As [`export`]. A `Box` with the memory may be in a [`MaybeDangling`].
#[inline]
pub(crate) unsafe fn export_kept<A: TensorAbi, O: ExportOwner>(
    info: &ArrayInfo,
    owner: O,
    ownership: Ownership,
) -> Result<ManagedTensor<A>, Refused<O>> {
    // SAFETY: as the caller promises.
    unsafe { export_described(info, MaybeDangling::new(owner), ownership) }
}

/// As [`export`], for an owner from which `info` was read.
///
/// # Safety
///
/// As [`export`], rules 1 and 2.
#[inline]
pub(crate) unsafe fn export_described<A: TensorAbi, O: ExportOwner>(
    info: &ArrayInfo,
    owner: MaybeDangling<O>,
    ownership: Ownership,
) -> Result<ManagedTensor<A>, Refused<O>> {
    let flags = match flags::<A>(info, ownership) {
        Ok(flags) => flags,
        Err(error) => return Err(Refused::new(owner.into_inner(), error)),
    };
    let flat;
    let info = if info.struct_type().is_some() {
        flat = match info.without_struct_type() {
            Ok(flat) => flat,
            Err(error) => return Err(Refused::new(owner.into_inner(), error)),
        };
        &flat
    } else {
        info
    };
    Ok(pack(info, flags, owner))
}

#[inline]
fn flags<A: TensorAbi>(info: &ArrayInfo, ownership: Ownership) -> Result<u64> {
    info.device().check()?;
    let writable = ownership.may_write(info);
    if !A::IS_VERSIONED && (!writable || info.is_padded()) {
        return Err(not_expressible(writable, info.dtype()));
    }
    let mut flags = if writable { 0 } else { FLAG_READ_ONLY };
    if ownership == Ownership::Copied {
        flags |= FLAG_IS_COPIED;
    }
    if info.is_padded() {
        flags |= FLAG_SUBBYTE_PADDED;
    }
    Ok(flags)
}

/// The error for a property that a legacy tensor cannot express.
#[cold]
fn not_expressible(writable: bool, dtype: DType) -> Error {
    if !writable {
        let allowed = "a versioned tensor (`max_version=(1, 0)` in Python), or a copy: a legacy tensor cannot be read-only";
        let error =
            Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array in a legacy `dltensor`", allowed);
        return error.with_python_hint("make a copy for a library that asks for one, as JAX does");
    }
    let found = text!("padded {dtype} in a legacy `dltensor`");
    let allowed = "a versioned tensor: a legacy tensor cannot have padded elements";
    let error = Error::new(ErrorKind::Unsupported, "dtype", found, allowed);
    error.with_python_hint("for a library that asks for one, as JAX does, pass `numpy.asarray(x)`")
}

/// The layout of the allocation for `ndim` axes, and the offset of the numbers.
#[inline]
fn alloc_layout<A, O>(ndim: u8) -> (AllocLayout, usize) {
    AllocLayout::array::<i64>(2 * usize::from(ndim))
        .and_then(|numbers| AllocLayout::new::<Allocation<A, O>>().extend(numbers))
        .unwrap_or_else(|_| unreachable!("a layout has at most 64 axes"))
}

/// Ends the program. As an `extern "C"` function it cannot unwind, so the caller needs no cleanup on this path.
#[cold]
extern "C" fn allocation_failed<A, O>(ndim: u8) -> ! {
    handle_alloc_error(alloc_layout::<A, O>(ndim).0)
}

#[inline]
fn pack<A: TensorAbi, O: ExportOwner>(
    info: &ArrayInfo,
    flags: u64,
    mut owner: MaybeDangling<O>,
) -> ManagedTensor<A> {
    let (extents, steps) = (info.shape(), info.strides());
    let Ok(ndim) = u8::try_from(extents.len()) else { unreachable!("a layout has at most 64 axes") };
    let (alloc_layout, numbers) = alloc_layout::<A, O>(ndim);
    // SAFETY: the size of an allocation is not 0.
    let start = unsafe { alloc(alloc_layout) };
    if start.is_null() {
        allocation_failed::<A, O>(ndim);
    }
    // All pointers into the allocation derive from `start`, so that each has provenance for the whole of it.
    #[expect(clippy::cast_ptr_alignment, reason = "`extend` aligns the offset of the numbers")]
    let shape = start.wrapping_add(numbers).cast::<i64>();
    let strides = shape.wrapping_add(usize::from(ndim));
    for (axis, (extent, step)) in extents.iter().zip(steps).enumerate() {
        // SAFETY: `alloc_layout` has `2 * ndim` aligned numbers at offset `numbers`.
        unsafe { shape.wrapping_add(axis).write(*extent as i64) };
        // SAFETY: as above.
        unsafe { strides.wrapping_add(axis).write(*step as i64) };
    }
    let tensor = tensor_of(info, shape);
    let release_is_ordered = O::OWNS_THE_ARRAY && info.state.release_is_ordered;
    let is_free = info.device() == Device::CPU || release_is_ordered;
    let reach = if is_free { None } else { reach_of(info) };
    let reach = reach.map(|reach| owner.get_mut().adapt_reach(reach));
    let managed = A::wrap(tensor, flags, start.cast::<c_void>(), release::<A, O>);
    let allocation = start.cast::<Allocation<A, O>>();
    // SAFETY: `alloc_layout` starts with an allocation and is aligned for one.
    unsafe { allocation.write(Allocation { managed, ndim, is_unconsumed: false, reach, owner }) };
    COUNTERS.exports.add();
    // SAFETY: the struct is complete and not shared; the caller of `export` guarantees that its memory is live.
    unsafe { ManagedTensor::from_raw(allocation.cast::<A>()) }
}

/// Describes the array by numbers at `shape`: the extents, then the strides.
#[inline]
pub(crate) fn tensor_of(info: &ArrayInfo, shape: *mut i64) -> DLTensor {
    let ndim = info.ndim();
    let null_without_axes = |pointer| if ndim == 0 { ptr::null_mut() } else { pointer };
    DLTensor {
        data: ptr::with_exposed_provenance_mut(info.address()),
        device: info.device(),
        ndim: i32::try_from(ndim).unwrap_or_else(|_| unreachable!("a layout has at most 64 axes")),
        dtype: info.dtype(),
        shape: null_without_axes(shape),
        strides: null_without_axes(shape.wrapping_add(ndim)),
        byte_offset: 0,
    }
}

/// A pointer to a field of an allocation.
fn field_ptr<A, O, F>(allocation: *mut Allocation<A, O>, offset: usize) -> *const F {
    allocation.wrapping_byte_add(offset).cast()
}

/// The deleter: drops the owner and frees the allocation, now or after the work that the release waits for. Nothing is
/// allocated for the wait, because a failed allocation would end the program inside foreign code.
///
/// A panic in the drop of the owner is caught, because it must not unwind into C; the remaining fields of the owner are
/// dropped. The owner is dropped in place.
///
/// # Safety
///
/// `managed` was created by `pack::<A, O>`, and this is the only call with it.
unsafe extern "C" fn release<A: TensorAbi, O: ExportOwner>(managed: *mut A) {
    let allocation = managed.cast::<Allocation<A, O>>();
    // SAFETY: the allocation is live, and consumers do not write to it.
    let is_unconsumed =
        unsafe { field_ptr::<A, O, bool>(allocation, offset_of!(Allocation<A, O>, is_unconsumed)).read() };
    if !is_unconsumed {
        let owner = field_ptr::<A, O, MaybeDangling<O>>(allocation, offset_of!(Allocation<A, O>, owner));
        // SAFETY: the owner is live until the allocation is dropped, below.
        unsafe { &*owner }.get().mark_consumed();
    }
    // SAFETY: the struct is the first field of the allocation.
    let reach =
        unsafe { field_ptr::<A, O, Option<Reach>>(allocation, offset_of!(Allocation<A, O>, reach)).read() };
    COUNTERS.exports.sub();
    let Some(value) = NonNull::new(allocation.cast::<()>()) else { return };
    // SAFETY: the allocation is dropped once, by this owner. Its own owner may be dropped on any thread.
    let owner = unsafe { Owner::from_raw(value, drop_allocation::<A, O>) };
    contain_panic(|| drop(owner.with_reach(reach)));
}

/// Releases a tensor that no consumer has taken.
///
/// # Safety
///
/// The tensor was exported by this crate.
#[cfg(feature = "python")]
pub(crate) unsafe fn drop_unconsumed<A: TensorAbi>(tensor: ManagedTensor<A>) {
    // The same for each owner, because the owner comes later.
    let offset = offset_of!(Allocation<A, ()>, is_unconsumed);
    let flag = tensor.as_ptr().cast_mut().wrapping_byte_add(offset).cast::<bool>();
    // SAFETY: the tensor is the start of an allocation, as the caller promises, and nobody else has it.
    unsafe { flag.write(true) };
    drop(tensor);
}

/// Drops the owner in an allocation in place, and frees the allocation, also if the drop panics.
///
/// # Safety
///
/// `allocation` was created by `pack::<A, O>`, and is not used afterwards.
unsafe fn drop_allocation<A: TensorAbi, O>(allocation: NonNull<()>) {
    struct Freed<A, O>(*mut Allocation<A, O>);

    impl<A, O> Drop for Freed<A, O> {
        fn drop(&mut self) {
            // SAFETY: the allocation is not freed yet, and consumers do not write to `ndim`.
            let ndim = unsafe { field_ptr::<A, O, u8>(self.0, offset_of!(Allocation<A, O>, ndim)).read() };
            // SAFETY: the memory was allocated with this layout, and no field needs to be dropped any more.
            unsafe { dealloc(self.0.cast(), alloc_layout::<A, O>(ndim).0) };
        }
    }

    let allocation = Freed(allocation.as_ptr().cast::<Allocation<A, O>>());
    let owner =
        field_ptr::<A, O, MaybeDangling<O>>(allocation.0, offset_of!(Allocation<A, O>, owner)).cast_mut();
    // SAFETY: the owner is dropped once and not used afterwards.
    unsafe { owner.drop_in_place() };
}

/// The owner in an export.
pub(crate) trait ExportOwner: Send + 'static {
    /// Returns the reach of the owner, given that of the memory. An owner that makes the context of the memory
    /// current itself stores the reach and marks the result as one without a context.
    fn adapt_reach(&mut self, reach: Reach) -> Reach {
        reach
    }

    /// Whether the drop is that of the described array, or of a reference to it.
    const OWNS_THE_ARRAY: bool;

    /// Notes that a consumer has taken the memory, which only this crate had used before.
    fn mark_consumed(&self) {}
}

/// The array itself, or any other owner, which may free the memory in the context that is current.
#[repr(transparent)]
pub(crate) struct ExportedValue<O, const OWNS_THE_ARRAY: bool>(pub(crate) O);

impl<O: Send + 'static, const OWNS_THE_ARRAY: bool> ExportOwner for ExportedValue<O, OWNS_THE_ARRAY> {
    const OWNS_THE_ARRAY: bool = OWNS_THE_ARRAY;
}

impl<H: Handle + Send + 'static> ExportOwner for InReach<H> {
    const OWNS_THE_ARRAY: bool = true;

    fn adapt_reach(&mut self, reach: Reach) -> Reach {
        self.reach = Some(reach);
        reach.without_context()
    }
}

// The buffers of copies free their memory themselves.
#[cfg(feature = "python")]
impl ExportOwner for HostBuffer {
    const OWNS_THE_ARRAY: bool = true;
}

#[cfg(feature = "python")]
impl ExportOwner for CudaBuffer {
    const OWNS_THE_ARRAY: bool = true;

    fn mark_consumed(&self) {
        if let Some(uses) = &self.uses {
            uses.note_unknown();
        }
    }
}
