//! The way in: a foreign struct, owned from the first moment, read field by field.
#![expect(
    clippy::inline_always,
    reason = "the usual facts are made where they stay: moved, they cost more than to read"
)]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::array::device::DeviceType;
use crate::array::dims::{Dims, MAX_NDIM, for_rank};
use crate::array::info::ArrayInfo;
use crate::array::layout::errors::no_extents;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::raw_descriptor::{RawDescriptor, Strides};
use crate::array::stream::StreamHandle;
use crate::error::{Error, ErrorKind, Result, text};
use crate::protocols::dlpack::abi::{
    DLPackVersion, DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, MAJOR_VERSION, TensorAbi,
};

const KNOWN_FLAGS: u64 = FLAG_READ_ONLY | FLAG_IS_COPIED | FLAG_SUBBYTE_PADDED;

/// A managed tensor of either form, ours or foreign: dropping it calls the deleter.
///
/// Nothing of it is believed; [`info`](Self::info) checks what it says.
pub struct ManagedTensor<A: TensorAbi> {
    tensor: NonNull<A>,
}

// SAFETY: a managed tensor may be released on any thread (`dlpack.h` promises consumers no thread, and exports demand an
// owner that is `Send`); there is no other access than reading fields that do not change.
unsafe impl<A: TensorAbi> Send for ManagedTensor<A> {}

// SAFETY: as above; `&ManagedTensor` only reads.
unsafe impl<A: TensorAbi> Sync for ManagedTensor<A> {}

impl<A: TensorAbi> ManagedTensor<A> {
    /// Takes over a managed tensor, such as the pointer in a capsule that was renamed, or one of a library in C
    /// ([`C_HEADER`](crate::protocols::dlpack::C_HEADER) tells it what happens to its tensor).
    ///
    /// # Safety
    ///
    /// 1. `tensor` is not null and points to a struct of the form `A`, aligned, that nobody else releases.
    /// 2. `shape` and `strides` are null or point to `ndim` numbers; the memory that the struct describes, from the
    ///    lowest element to the highest, is live and initialized until the deleter is called, on the device that it names, and
    ///    may be written unless its flags say otherwise.
    /// 3. The deleter may be called on any thread.
    #[must_use]
    pub unsafe fn from_raw(tensor: *mut A) -> Self {
        // SAFETY: not null, by 1.
        Self { tensor: unsafe { NonNull::new_unchecked(tensor) } }
    }

    /// Hands over the struct: whoever gets the pointer calls its deleter, once, on any thread
    /// ([`C_HEADER`](crate::protocols::dlpack::C_HEADER) has the whole contract).
    #[must_use]
    pub fn into_raw(self) -> *mut A {
        ManuallyDrop::new(self).tensor.as_ptr()
    }

    /// The struct, to be looked at.
    #[must_use]
    pub fn as_ptr(&self) -> *const A {
        self.tensor.as_ptr()
    }

    /// What the struct says, checked.
    ///
    /// A legacy tensor cannot say whether it may be written; it counts as read-only, as in `NumPy`
    /// (see [`Import::assume_writable`](crate::memory::import::Import::assume_writable)).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Version`] when the major version is not 1: nothing else was read then; and for flags that are not known
    /// beside elements of less than a byte. [`ErrorKind::Rank`] and [`ErrorKind::NullPointer`] for a negative or huge `ndim` and for
    /// null where numbers should be; otherwise as [`RawDescriptor::validate`](crate::array::raw_descriptor::RawDescriptor::validate).
    pub fn info(&self) -> Result<ArrayInfo> {
        let mut info = ArrayInfo::EMPTY;
        self.info_into(&mut info)?;
        Ok(info)
    }

    /// As [`info`](Self::info), written to their final place.
    pub(crate) fn info_into(&self, to: &mut ArrayInfo) -> Result<()> {
        let flags = self.flags().map_err(unreadable)?;
        // SAFETY: the place of the tensor in a live struct of a version that we know; 2 of `from_raw`.
        *to = match unsafe { read_fast(self.tensor_ptr(), flags, None, |_, _| true) } {
            Some(info) => info,
            // SAFETY: as above.
            None => unsafe { read_any(self.tensor_ptr(), flags) }?,
        };
        Ok(())
    }

    /// The fast path of [`info`](Self::info): an array in host memory, as `is_on_host` says of its address, with this
    /// number of axes where one is wanted. `None` for any other.
    #[inline(always)]
    pub(crate) fn info_fast(
        &self,
        axes: Option<usize>,
        is_on_host: impl FnOnce(usize) -> bool,
    ) -> Option<ArrayInfo> {
        let is_wanted = |tensor: &DLTensor, shape: &[i64]| {
            if tensor.device.device_type != DeviceType::CPU {
                return false;
            }
            // An offset beyond the address space is refused on the slow path.
            let offset = || usize::try_from(tensor.byte_offset).unwrap_or(0);
            // An array without elements is nowhere.
            shape.contains(&0) || is_on_host(tensor.data.addr().wrapping_add(offset()))
        };
        // SAFETY: as in `info`.
        unsafe { read_fast(self.tensor_ptr(), self.flags().ok()?, axes, is_wanted) }
    }

    /// The flags, or a version that cannot be read.
    #[inline(always)]
    fn flags(&self) -> Result<u64, DLPackVersion> {
        let Some((version, flags)) = A::version(self.tensor.as_ptr()) else { return Ok(FLAG_READ_ONLY) };
        // SAFETY: the place of the version in a live struct (1 of `from_raw`).
        let version = unsafe { version.read() };
        if version.major != MAJOR_VERSION {
            return Err(version);
        }
        // SAFETY: the place of the flags, likewise; the major version says that they are there.
        Ok(unsafe { flags.read() })
    }

    #[inline]
    fn tensor_ptr(&self) -> *const DLTensor {
        self.tensor.as_ptr().wrapping_byte_add(A::TENSOR_OFFSET).cast()
    }

    /// The struct, which this no longer releases.
    #[inline]
    pub(crate) fn into_non_null(self) -> NonNull<()> {
        ManuallyDrop::new(self).tensor.cast()
    }
}

#[cold]
fn unreadable(version: DLPackVersion) -> Error {
    let found = text!("DLPack {}.{}", version.major, version.minor);
    Error::new(ErrorKind::Version, "version", found, "major version 1")
}

/// Reads a `DLTensor` that has a few axes, if it is wanted.
///
/// # Safety
///
/// `place` points to a live tensor, whose `shape` and `strides` are null or point to `ndim` numbers.
#[inline(always)]
unsafe fn read_fast(
    place: *const DLTensor,
    flags: u64,
    axes: Option<usize>,
    is_wanted: impl FnOnce(&DLTensor, &[i64]) -> bool,
) -> Option<ArrayInfo> {
    // SAFETY: live, as the caller promises; plain numbers and pointers, of which every bit pattern is valid.
    let tensor = unsafe { place.read() };
    if tensor.shape.is_null() {
        return None;
    }
    let ndim = usize::try_from(tensor.ndim).ok()?;
    if axes.is_some_and(|axes| axes != ndim) {
        return None;
    }
    // SAFETY: the shape is not null, so it has as many numbers, as the caller promises.
    for_rank!(ndim, N => unsafe { read_ranked::<N>(&tensor, flags, is_wanted) })
}

/// Reads a tensor of `N` axes.
///
/// # Safety
///
/// `shape` points to `N` numbers, and so does `strides`, unless it is null.
#[inline(always)]
unsafe fn read_ranked<const N: usize>(
    tensor: &DLTensor,
    flags: u64,
    is_wanted: impl FnOnce(&DLTensor, &[i64]) -> bool,
) -> Option<ArrayInfo> {
    // One by one: a wide load stalls on the narrow stores that a producer made a moment ago.
    let (mut shape, mut strides) = ([0; N], [0; N]);
    for (axis, extent) in shape.iter_mut().enumerate() {
        // SAFETY: one of `N` numbers, as the caller promises.
        *extent = unsafe { tensor.shape.wrapping_add(axis).read() };
    }
    if !is_wanted(tensor, &shape) {
        return None;
    }
    if tensor.strides.is_null() {
        return descriptor_of(tensor, flags, &shape, Strides::Contiguous(Order::C)).validate_fast();
    }
    for (axis, stride) in strides.iter_mut().enumerate() {
        // SAFETY: one of `N` numbers, as the caller promises.
        *stride = unsafe { tensor.strides.wrapping_add(axis).read() };
    }
    descriptor_of(tensor, flags, &shape, Strides::Elements(&strides)).validate_fast()
}

/// Reads a `DLTensor`, whatever it says. The numbers are copied out: the producer may change them, and they die with the
/// struct.
///
/// # Safety
///
/// As [`read_fast`].
#[cold]
unsafe fn read_any(place: *const DLTensor, flags: u64) -> Result<ArrayInfo> {
    // SAFETY: as in `read_fast`.
    let tensor = unsafe { place.read() };
    let ndim = usize::try_from(tensor.ndim)
        .ok()
        .filter(|ndim| *ndim <= MAX_NDIM)
        .ok_or_else(|| Error::new(ErrorKind::Rank, "ndim", tensor.ndim, format_args!("0 to {MAX_NDIM}")))?;
    if tensor.dtype.bits() % 8 != 0 && flags & !KNOWN_FLAGS != 0 {
        // A flag of a later minor version may change where such elements lie, as the padding flag did.
        let allowed = "flags 1, 2 and 4 for elements of less than a byte";
        return Err(Error::new(ErrorKind::Version, "flags", format_args!("{flags:#x}"), allowed));
    }
    if ndim > 0 && tensor.shape.is_null() {
        return Err(no_extents(ndim));
    }
    let numbers = |list: *mut i64| {
        Dims::filled(ndim, |items| {
            for (axis, item) in items.iter_mut().enumerate() {
                // SAFETY: one of `ndim` numbers, as the caller promises.
                *item = unsafe { list.wrapping_add(axis).read() };
            }
        })
    };
    let shape = numbers(tensor.shape);
    if ndim == 0 || tensor.strides.is_null() {
        return descriptor_of(&tensor, flags, &shape, Strides::Contiguous(Order::C)).validate_full();
    }
    descriptor_of(&tensor, flags, &shape, Strides::Elements(&numbers(tensor.strides))).validate_full()
}

#[inline(always)]
fn descriptor_of<'a>(
    tensor: &DLTensor,
    flags: u64,
    shape: &'a [i64],
    strides: Strides<'a>,
) -> RawDescriptor<'a> {
    RawDescriptor {
        address: tensor.data.expose_provenance(),
        byte_offset: tensor.byte_offset,
        dtype: tensor.dtype,
        padded: flags & FLAG_SUBBYTE_PADDED != 0,
        struct_type: None,
        shape,
        strides,
        device: Some(tensor.device),
        mutability: if flags & FLAG_READ_ONLY == 0 { Mutability::Writable } else { Mutability::ReadOnly },
        stream: StreamHandle::NothingPending,
        memory: None,
    }
}

/// Calls the deleter of a managed tensor, if it has one.
///
/// # Safety
///
/// `tensor` is a live struct of the form `A`, and this is the one release of it.
pub(crate) unsafe fn release<A: TensorAbi>(tensor: NonNull<()>) {
    let tensor = tensor.cast::<A>().as_ptr();
    // SAFETY: the place of the deleter in a live struct; it is where it is in every version.
    let deleter = unsafe { A::deleter(tensor).read() };
    if let Some(deleter) = deleter {
        // SAFETY: the struct's own deleter, called once.
        unsafe { deleter(tensor) };
    }
}

impl<A: TensorAbi> Drop for ManagedTensor<A> {
    fn drop(&mut self) {
        // SAFETY: the struct is ours to release (1 of `from_raw`), and this is the end of it.
        unsafe { release::<A>(self.tensor.cast()) };
    }
}

impl<A: TensorAbi> fmt::Debug for ManagedTensor<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_tuple("ManagedTensor");
        match self.info() {
            Ok(info) => shown.field(&info).finish(),
            Err(error) => shown.field(&error).finish(),
        }
    }
}
