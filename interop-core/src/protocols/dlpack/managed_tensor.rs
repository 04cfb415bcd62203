//! Owned managed tensors, functions that read tensors of other libraries, and imports.
#![expect(clippy::inline_always, reason = "an import is written in place, see `ImportSlot`")]
#![expect(unsafe_code, reason = "takes ownership of a tensor")]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::array::description::Description;
use crate::array::device::Device;
use crate::array::dims::{MAX_NDIM, with_lists};
use crate::array::layout::errors::no_extents;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::validate::{RawDescriptor, Strides};
use crate::driver::reach::Reach;
use crate::driver::stream::Stream;
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::import::{Filled, Import, ImportSlot, Protocol};
use crate::order::array_info::ArrayInfo;
use crate::order::memory_check::Verification;
use crate::order::memory_state::MemoryState;
use crate::order::placement::{Change, Placement};
use crate::order::release::owner::Owner;
use crate::protocols::dlpack::abi::{
    DLPackVersion, DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, MAJOR_VERSION, TensorAbi,
    Versioned,
};

const SUPPORTED_FLAGS: u64 = FLAG_READ_ONLY | FLAG_IS_COPIED | FLAG_SUBBYTE_PADDED;

/// A managed tensor of either struct type, from this crate or another library. Dropping it calls the deleter.
///
/// Its content is not trusted. [`info`](Self::info) checks it.
pub struct ManagedTensor<A: TensorAbi = Versioned> {
    tensor: NonNull<A>,
    /// The stream of the consumer, for which an export has made the memory ready.
    ready_on: Option<Stream>,
}

// SAFETY: a managed tensor may be released on any thread: `dlpack.h` names no thread, and exports require a `Send`
// owner. All other access reads fields that do not change.
unsafe impl<A: TensorAbi> Send for ManagedTensor<A> {}

// SAFETY: as above; `&ManagedTensor` only reads.
unsafe impl<A: TensorAbi> Sync for ManagedTensor<A> {}

impl<A: TensorAbi> ManagedTensor<A> {
    /// Takes ownership of a managed tensor, for example of the pointer in a renamed capsule or from a C library.
    /// [`C_HEADER`](crate::protocols::dlpack::C_HEADER) states the contract for C.
    ///
    /// # Safety
    ///
    /// 1. `tensor` is not null, is aligned, and points to a struct of type `A` that nobody else releases.
    /// 2. `shape` and `strides` are null or point to `ndim` numbers. The described memory, from the lowest to the
    ///    highest element, is live and initialized until the deleter is called. It is on the device that the struct
    ///    names, and may be written unless the flags forbid it.
    /// 3. The deleter may be called on any thread.
    /// 4. Work that is pending on device memory comes before later work on the legacy default stream of the context, as after
    ///    a `__dlpack__` without a stream. If it is ordered before another stream only, import the tensor and name that
    ///    stream by [`Import::assume_ready_on`]; if it is ordered before no stream, wait for it first.
    #[must_use]
    pub unsafe fn from_raw(tensor: *mut A) -> Self {
        // SAFETY: the pointer is not null, by 1.
        let tensor = unsafe { NonNull::new_unchecked(tensor) };
        // Without a `stream` argument the producer synchronizes with the legacy default stream.
        Self { tensor, ready_on: Stream::anywhere(StreamHandle::LegacyDefault) }
    }

    /// States for which stream an export of this crate has made the memory ready.
    #[inline]
    pub(crate) fn ready_on(mut self, stream: Option<Stream>) -> Self {
        // What is ready for all streams is ready on the default stream.
        self.ready_on = stream.or(self.ready_on);
        self
    }

    /// Returns the struct. The receiver must call its deleter once, on any thread.
    /// [`C_HEADER`](crate::protocols::dlpack::C_HEADER) states the whole contract.
    #[must_use]
    pub fn into_raw(self) -> *mut A {
        ManuallyDrop::new(self).tensor.as_ptr()
    }

    /// Returns a pointer to the struct, for reading.
    #[must_use]
    pub fn as_ptr(&self) -> *const A {
        self.tensor.as_ptr()
    }

    /// Checks the struct and returns the description of the array.
    ///
    /// A legacy tensor cannot state whether it may be written. It is read-only, as in `NumPy`; see
    /// [`Import::assume_writable`](crate::memory::import::Import::assume_writable).
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Version`] if the major version is not 1, and for unknown flags with elements of less than a byte.
    ///   No other field is read from another major version.
    /// - [`ErrorKind::Rank`] or [`ErrorKind::NullPointer`] for an invalid `ndim`, or a null pointer to the extents.
    /// - Otherwise as [`RawDescriptor::validate`](crate::array::validate::RawDescriptor::validate).
    pub fn info(&self) -> Result<ArrayInfo> {
        let mut description = Description::empty();
        self.info_into(&mut description)?;
        let placement =
            if description.device == Device::CPU { Placement::Nothing } else { Placement::Unknown };
        Ok(ArrayInfo::new(description, MemoryState::new(placement)))
    }

    /// As [`info`](Self::info), but writes the result to `to`.
    pub(crate) fn info_into(&self, to: &mut Description) -> Result<()> {
        let flags = self.flags().map_err(unsupported_version)?;
        // SAFETY: the tensor is part of a live struct of a supported version; 2 of `from_raw`.
        unsafe { read_tensor(self.tensor_ptr(), flags, to) }
    }

    /// Returns the flags, or the version if it is not supported.
    #[inline(always)]
    fn flags(&self) -> Result<u64, DLPackVersion> {
        let Some((version, flags)) = A::version(self.tensor.as_ptr()) else { return Ok(FLAG_READ_ONLY) };
        // SAFETY: the version is a field of a live struct (1 of `from_raw`).
        let version = unsafe { version.read() };
        if version.major != MAJOR_VERSION {
            return Err(version);
        }
        // SAFETY: the flags are a field of the same struct in this major version.
        Ok(unsafe { flags.read() })
    }

    #[inline]
    fn tensor_ptr(&self) -> *const DLTensor {
        self.tensor.as_ptr().wrapping_byte_add(A::TENSOR_OFFSET).cast()
    }

    /// Fills a slot with the array, in any memory.
    ///
    /// # Errors
    ///
    /// As [`Import::from_dlpack`].
    ///
    /// # Safety
    ///
    /// `release` releases a struct of type `A` on any thread.
    #[inline(never)]
    pub(crate) unsafe fn fill_slot(
        self,
        slot: &mut ImportSlot,
        release: unsafe fn(NonNull<()>),
        verification: Verification,
    ) -> Result<Filled, Refused<Self>> {
        let ready_on = self.ready_on;
        let described = match slot.describe(verification, |info| self.info_into(info)) {
            Ok(described) => described,
            Err(error) => return Err(Refused::new(self, error)),
        };
        let reach = described.reach.map(Reach::without_context);
        // SAFETY: the owner releases the struct once, on any thread (1 and 3 of `from_raw`).
        let owner = unsafe { Owner::from_raw(self.into_non_null(), release) }.with_reach(reach);
        let protocol = if A::IS_VERSIONED { Protocol::DlpackVersioned } else { Protocol::DlpackLegacy };
        let filled = described.own(owner, Some(protocol));
        let import = slot.import(&filled);
        if import.info.device != Device::CPU {
            import.change(Change::Stated(ready_on));
        }
        Ok(filled)
    }

    /// Returns the struct without releasing it.
    #[inline]
    pub(crate) fn into_non_null(self) -> NonNull<()> {
        ManuallyDrop::new(self).tensor.cast()
    }
}

#[cold]
fn unsupported_version(version: DLPackVersion) -> Error {
    let found = text!("DLPack {}.{}", version.major, version.minor);
    Error::new(ErrorKind::Version, "version", found, "major version 1")
}

/// Reads and checks a `DLTensor`, and writes the description to `to`.
///
/// # Errors
///
/// As [`ManagedTensor::info`].
///
/// # Safety
///
/// `tensor` points to a live tensor, whose `shape` and `strides` are null or point to `ndim` numbers.
#[inline(never)] // once for both forms of managed tensors
pub(crate) unsafe fn read_tensor(tensor: *const DLTensor, flags: u64, to: &mut Description) -> Result<()> {
    // SAFETY: the caller guarantees a live tensor; every bit pattern of its numbers and pointers is valid.
    let tensor = unsafe { tensor.read() };
    let ndim = usize::try_from(tensor.ndim).unwrap_or(usize::MAX);
    if ndim > MAX_NDIM {
        return Err(invalid_rank(tensor.ndim));
    }
    if tensor.dtype.bits % 8 != 0 && flags & !SUPPORTED_FLAGS != 0 {
        return Err(unknown_flags(flags));
    }
    if ndim > 0 && tensor.shape.is_null() {
        return Err(no_extents(ndim));
    }
    // SAFETY: the caller guarantees `ndim` numbers.
    let extent = |axis: usize| unsafe { tensor.shape.wrapping_add(axis).read() };
    if tensor.strides.is_null() {
        return with_lists!(ndim, extent, |_| 0, |shape, _| {
            descriptor_of(&tensor, flags, &shape, Strides::Contiguous(Order::C)).describe_into(to)
        });
    }
    // SAFETY: as above.
    let stride = |axis: usize| unsafe { tensor.strides.wrapping_add(axis).read() };
    with_lists!(ndim, extent, stride, |shape, strides| {
        descriptor_of(&tensor, flags, &shape, Strides::Elements(&strides)).describe_into(to)
    })
}

#[cold]
fn invalid_rank(ndim: i32) -> Error {
    Error::new(ErrorKind::Rank, "ndim", ndim, format_args!("0 to {MAX_NDIM}"))
}

/// A flag of a later minor version may change the layout of elements of less than a byte, as the padding flag did.
#[cold]
fn unknown_flags(flags: u64) -> Error {
    let allowed = "flags 1, 2 and 4 for elements of less than a byte";
    Error::new(ErrorKind::Version, "flags", format_args!("{flags:#x}"), allowed)
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
        stream: None,
        memory: None,
    }
}

/// Calls the deleter of a managed tensor, if it has one.
///
/// # Safety
///
/// `tensor` is a live struct of type `A`, and this is its only release.
pub(crate) unsafe fn release<A: TensorAbi>(tensor: NonNull<()>) {
    let tensor = tensor.cast::<A>().as_ptr();
    // SAFETY: the deleter is a field of a live struct, at the same offset in every version.
    let deleter = unsafe { A::deleter(tensor).read() };
    if let Some(deleter) = deleter {
        // SAFETY: this is the struct's own deleter, called once.
        unsafe { deleter(tensor) };
    }
}

impl<A: TensorAbi> Drop for ManagedTensor<A> {
    fn drop(&mut self) {
        // SAFETY: this value owns the struct (1 of `from_raw`) and does not use it afterwards.
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

impl Import {
    /// Imports the array of a managed tensor, in place.
    ///
    /// # Errors
    ///
    /// The tensor is returned with the reason: as [`ManagedTensor::info`], and if there is a driver:
    ///
    /// - [`ErrorKind::Device`](crate::error::ErrorKind::Device) if the memory is on another device than the tensor
    ///   states.
    /// - [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation.
    /// - [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) if a driver call fails.
    ///
    /// ```
    /// use interop_core::{CudaArray, FromArray, Import};
    ///
    /// #[derive(CudaArray)]
    /// struct Samples { #[cuda_array(data)] values: Vec<f32>, #[cuda_array(shape)] shape: Vec<usize> }
    ///
    /// let tensor = Samples { values: vec![1.0; 6], shape: vec![2, 3] }.into_dlpack()?;
    /// let import = Import::from_dlpack(tensor)?;
    /// assert_eq!(import.info().shape(), [2, 3]);
    /// assert_eq!(Samples::from_import(import)?.values, [1.0; 6]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    #[inline(always)]
    pub fn from_dlpack<A: TensorAbi>(tensor: ManagedTensor<A>) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Verification::Full)
    }

    /// As [`from_dlpack`](Self::from_dlpack), but does not ask the driver about the device and size of the memory.
    ///
    /// This saves one driver call for CUDA memory, and one more for each piece of memory that was mapped in pieces. It
    /// is the only way to import memory that a graph allocates during capture, because the driver knows it only after
    /// the graph has run.
    ///
    /// # Errors
    ///
    /// As [`from_dlpack`](Self::from_dlpack), for rules that need no driver.
    ///
    /// # Safety
    ///
    /// The device and the extent in the tensor are correct; nothing else checks them. Work on the memory is in primary
    /// contexts, as with the CUDA runtime and nearly all libraries, because the reach is not looked up either.
    #[inline]
    pub unsafe fn from_dlpack_unchecked<A: TensorAbi>(
        tensor: ManagedTensor<A>,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        Self::from_dlpack_with(tensor, Verification::Skipped)
    }

    #[inline(always)]
    fn from_dlpack_with<A: TensorAbi>(
        tensor: ManagedTensor<A>,
        verification: Verification,
    ) -> Result<Self, Refused<ManagedTensor<A>>> {
        let mut slot = ImportSlot::new();
        // SAFETY: `release::<A>` releases a struct of type `A` on any thread (3 of `ManagedTensor::from_raw`).
        let filled = unsafe { tensor.fill_slot(&mut slot, release::<A>, verification) }?;
        Ok(slot.into_import(filled))
    }
}
