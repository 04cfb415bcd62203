//! The way out: one allocation for struct, shape, strides and owner.

use core::alloc::Layout as AllocLayout;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::cuda;
use crate::cuda::release::erased::contain_panic;
use crate::cuda::release::scope::ReleaseScope;
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::maybe_dangling::MaybeDangling;
use crate::memory::owner::Owner;
use crate::process::counters;
use crate::protocols::dlpack::abi::{
    DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, TensorAbi,
};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;

/// How an export holds the memory, which decides whether its consumer may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The export is the only one that has the array.
    Owned,
    /// The array is shared with others, among them Rust code that reads it.
    Shared,
    /// The export is the only one that has the array, a copy made for it (`DLPACK_FLAG_BITMASK_IS_COPIED`).
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

/// The head of the allocation; `2 * ndim` numbers lie behind it.
#[repr(C)]
struct Package<A, O> {
    managed: A,
    /// At most 64: with a byte the size of the allocation cannot overflow.
    ndim: u8,
    /// What the release comes after, for memory that devices work on.
    scope: Option<ReleaseScope>,
    owner: MaybeDangling<O>,
}

/// Packs the array that `info` describe into a managed tensor that owns `owner`.
///
/// `byte_offset` is 0 and `data` the first element, null without elements. Strides are always written when there are
/// axes. A struct element of equal fields becomes a trailing axis.
///
/// # Errors
///
/// The owner comes back with the reason: [`ErrorKind::ReadOnly`] when the array is read-only and the form is
/// [`Legacy`](crate::protocols::dlpack::abi::Legacy), which cannot say so; [`ErrorKind::Unsupported`] for padded sub-byte elements in that form;
/// [`ErrorKind::DType`] for struct elements of unlike fields; [`ErrorKind::Rank`] and [`ErrorKind::Overflow`] for those whose
/// trailing axis is one too many, or counts too far; [`ErrorKind::Device`] when nobody knows the device.
///
/// # Safety
///
/// 1. As long as `owner` is not dropped, the memory that `info` describe, all of their [`byte_range`](ArrayInfo::byte_range), is
///    live and initialized, and may be used by any thread; of host memory, somebody has exposed the pointer whose address is
///    in them.
/// 2. `access` is true, and no plain Rust reference to any of it exists as long where the two allow writing: where
///    `info.mutability()` is [`Always`](Mutability::Writable), and where it is [`WhenOwned`](Mutability::WhenOwned) unless `access` is
///    [`Shared`](Ownership::Shared).
///
/// ```
/// use interop_core::dlpack::{Ownership, Versioned, export};
/// use interop_core::{CudaArray, DType, RawDescriptor, Device, FromArray, Lease};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: Lease<f32>, len: usize }
///
/// let mut memory = vec![1.0_f32, 2.0, 3.0];
/// let address = memory.as_mut_ptr().expose_provenance();
/// let info = RawDescriptor { dtype: DType::F32, ..RawDescriptor::new(address, Device::CPU, &[3]) }.validate()?;
/// // SAFETY: 1: the vector keeps the memory, whose pointer was exposed, and any thread may use it. 2: the export is the only one
/// // that has the vector.
/// let tensor = unsafe { export::<Versioned, _>(&info, memory, Ownership::Owned) }?;
/// assert_eq!(Samples::from_dlpack(tensor)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
#[inline]
pub unsafe fn export<A: TensorAbi, O: Send + 'static>(
    info: &ArrayInfo,
    owner: O,
    access: Ownership,
) -> Result<ManagedTensor<A>, Refused<O>> {
    // SAFETY: as the caller promises.
    unsafe { export_described(info, MaybeDangling::new(owner), access) }
}

/// As [`export`], for an owner that the facts were read from.
///
/// # Safety
///
/// As [`export`].
#[inline]
pub(crate) unsafe fn export_described<A: TensorAbi, O: Send + 'static>(
    info: &ArrayInfo,
    owner: MaybeDangling<O>,
    access: Ownership,
) -> Result<ManagedTensor<A>, Refused<O>> {
    let flags = match flags::<A>(info, access) {
        Ok(flags) => flags,
        Err(error) => return Err(Refused { value: owner.into_inner(), error }),
    };
    if info.struct_type().is_some() {
        // SAFETY: as the caller promises.
        return unsafe { export_record(info, owner, access) };
    }
    Ok(pack(info, flags, owner))
}

/// As [`export`], for struct elements.
///
/// # Safety
///
/// As [`export`].
#[cold]
unsafe fn export_record<A: TensorAbi, O: Send + 'static>(
    info: &ArrayInfo,
    owner: MaybeDangling<O>,
    access: Ownership,
) -> Result<ManagedTensor<A>, Refused<O>> {
    match info.without_struct_type() {
        // SAFETY: as the caller promises: it is the same memory.
        Ok(flat) => unsafe { export_described(&flat, owner, access) },
        Err(error) => Err(Refused { value: owner.into_inner(), error }),
    }
}

#[inline]
fn flags<A: TensorAbi>(info: &ArrayInfo, access: Ownership) -> Result<u64> {
    info.device().check()?;
    let writable = access.may_write(info);
    if !A::IS_VERSIONED && (!writable || info.is_padded()) {
        return Err(unsayable(writable, info.dtype()));
    }
    let mut flags = if writable { 0 } else { FLAG_READ_ONLY };
    if access == Ownership::Copied {
        flags |= FLAG_IS_COPIED;
    }
    if info.is_padded() {
        flags |= FLAG_SUBBYTE_PADDED;
    }
    Ok(flags)
}

/// What the legacy form cannot say.
#[cold]
fn unsayable(writable: bool, dtype: DType) -> Error {
    if !writable {
        let allowed = "the versioned form (`max_version=(1, 0)` in Python), or a copy: the legacy form cannot say read-only";
        let error =
            Error::new(ErrorKind::ReadOnly, "readonly", "a read-only array in a legacy `dltensor`", allowed);
        return error.with_python_hint(
            "a library that asks for the legacy form takes a copy, as `jax.numpy.asarray` does",
        );
    }
    let found = text!("{dtype} in whole bytes in a legacy `dltensor`");
    let allowed = "the versioned form: the legacy form cannot say that elements are padded";
    Error::new(ErrorKind::Unsupported, "dtype", found, allowed)
}

/// The allocation for `ndim` axes, and where the numbers start in it.
#[inline]
fn alloc_layout<A, O>(ndim: u8) -> (AllocLayout, usize) {
    AllocLayout::array::<i64>(2 * usize::from(ndim))
        .and_then(|numbers| AllocLayout::new::<Package<A, O>>().extend(numbers))
        .unwrap_or_else(|_| unreachable!("a layout has 64 axes at most"))
}

/// Ends the program. It is a C function because nothing unwinds out of one, so the caller needs no cleanup on this path.
#[cold]
extern "C" fn no_memory<A, O>(ndim: u8) -> ! {
    handle_alloc_error(alloc_layout::<A, O>(ndim).0)
}

#[inline]
fn pack<A: TensorAbi, O: Send + 'static>(
    info: &ArrayInfo,
    flags: u64,
    owner: MaybeDangling<O>,
) -> ManagedTensor<A> {
    let (extents, steps) = (info.shape(), info.strides());
    let Ok(ndim) = u8::try_from(extents.len()) else { unreachable!("a layout has 64 axes at most") };
    let (alloc_layout, numbers) = alloc_layout::<A, O>(ndim);
    // SAFETY: a package has a size.
    let start = unsafe { alloc(alloc_layout) };
    if start.is_null() {
        no_memory::<A, O>(ndim);
    }
    // Pointers into the block are all made from `start`, so that each may reach the whole of it.
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "`extend` puts the numbers at an offset that is aligned for them"
    )]
    let shape = start.wrapping_add(numbers).cast::<i64>();
    let strides = shape.wrapping_add(usize::from(ndim));
    for (axis, (extent, step)) in extents.iter().zip(steps).enumerate() {
        // SAFETY: `alloc_layout` has room for `2 * ndim` numbers from `numbers` on, aligned as `extend` lays them out.
        unsafe { shape.wrapping_add(axis).write(*extent as i64) };
        // SAFETY: as above.
        unsafe { strides.wrapping_add(axis).write(*step as i64) };
    }
    let absent = |pointer| if ndim == 0 { ptr::null_mut() } else { pointer };
    let tensor = DLTensor {
        data: ptr::with_exposed_provenance_mut(info.address()),
        device: info.device(),
        ndim: i32::from(ndim),
        dtype: info.dtype(),
        shape: absent(shape),
        strides: absent(strides),
        byte_offset: 0,
    };
    let scope = if info.device() == Device::CPU { None } else { cuda::release_scope_of(info) };
    let managed = A::wrap(tensor, flags, start.cast::<c_void>(), release::<A, O>);
    let package = start.cast::<Package<A, O>>();
    // SAFETY: `alloc_layout` starts with a package and is aligned for one.
    unsafe { package.write(Package { managed, ndim, scope, owner }) };
    counters::EXPORTS.add();
    // SAFETY: the struct is complete, its memory is live as the caller of `export` promises, and nobody else has it.
    unsafe { ManagedTensor::from_raw(package.cast::<A>()) }
}

/// The place of a field of a package.
fn at<A, O, F>(package: *mut Package<A, O>, offset: usize) -> *const F {
    package.wrapping_byte_add(offset).cast()
}

/// The deleter: drops the owner and frees the allocation.
///
/// A panic in the owner's drop stops here, because it must not cross into C; the rest of the owner is dropped all the same.
/// The owner is dropped in place, and moved only where its release comes after work.
///
/// # Safety
///
/// `managed` comes from `pack::<A, O>` and this is the one call for it.
unsafe extern "C" fn release<A: TensorAbi, O: Send + 'static>(managed: *mut A) {
    let package = managed.cast::<Package<A, O>>();
    // SAFETY: the struct is the first field of the package. `ndim` is our own number, which consumers do not know.
    let ndim = unsafe { at::<A, O, u8>(package, offset_of!(Package<A, O>, ndim)).read() };
    // SAFETY: as above.
    let scope = unsafe { at::<A, O, Option<ReleaseScope>>(package, offset_of!(Package<A, O>, scope)).read() };
    let owner = at::<A, O, MaybeDangling<O>>(package, offset_of!(Package<A, O>, owner)).cast_mut();
    contain_panic(|| {
        if scope.is_none() {
            // SAFETY: the place of the owner, which is dropped once and not used afterwards.
            return unsafe { owner.drop_in_place() };
        }
        // SAFETY: as above.
        let owner = unsafe { owner.read() };
        drop(Owner::new(owner.into_inner()).after(scope));
    });
    // SAFETY: the block was allocated with this layout; nothing in it needs a drop any more.
    unsafe { dealloc(package.cast(), alloc_layout::<A, O>(ndim).0) };
    counters::EXPORTS.sub();
}
