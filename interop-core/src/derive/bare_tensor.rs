//! Bare `DLTensor`s, which own nothing: those that another library lends, and those that are lent to it.
#![expect(
    unsafe_code,
    reason = "reads tensors that the caller promises to be valid, and declares who may hold them"
)]

use core::fmt;
use core::marker::PhantomData;

use std::sync::Arc;

use crate::array::device::Device;
use crate::array::dispatch::HasDType;
use crate::array::dtype::DType;
use crate::array::element::Element;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::derive::cuda_array::CudaArray;
use crate::derive::from_array::{FromArray, assemble_named};
use crate::error::{Error, ErrorKind, Refused, Result, text};
use crate::memory::cuda_buffer::CudaBuffer;
use crate::memory::extraction::Extraction;
use crate::memory::host_vec::{HostBuffer, HostVec};
use crate::memory::import::{Filled, Import, ImportSlot};
use crate::memory::lease::{Borrowed, BorrowedMut};
use crate::order::array_info::ArrayInfo;
use crate::order::handover::hand_over;
use crate::order::memory_check::Verification;
use crate::order::placement::{Change, Placement};
use crate::order::release::owner::Owner;
use crate::protocols::dlpack::abi::{DLTensor, FLAG_READ_ONLY};
use crate::protocols::dlpack::export::tensor_of;
use crate::protocols::dlpack::managed_tensor::read_tensor;

/// A tensor that another library lends for a time: the argument of a function of `tvm-ffi` or of PyTorch's stable ABI, or
/// a buffer of XLA.
///
/// It is a [`CudaArray`], so it can be viewed, copied and passed to kernels. [`into_array`](Self::into_array) makes a
/// derived struct of it, with the storage [`Borrowed`] or [`BorrowedMut`]. To keep such memory beyond the call, copy it, or
/// take a managed tensor by [`Import`](crate::Import).
///
/// ```
/// use interop_core::protocols::dlpack::DLTensor;
/// use interop_core::lent::{Borrowed, BorrowedTensor};
/// use interop_core::storage::Mutability;
/// use interop_core::{CudaArray, DType, Device, Error};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], device = "cpu")]
/// struct Row<S> { #[cuda_array(data)] values: S, len: usize }
///
/// /// As a library calls it from C.
/// ///
/// /// # Safety
/// ///
/// /// `tensor` points to a tensor that is live during the call.
/// unsafe extern "C" fn largest(tensor: *const DLTensor) -> f32 {
///     // SAFETY: the tensor and its memory are live during the call, and nobody writes to it meanwhile.
///     let tensor = unsafe { BorrowedTensor::new(tensor, Mutability::ReadOnly) };
///     let row = tensor.and_then(|tensor| tensor.into_array::<Row<Borrowed<'_, f32>>>().map_err(Error::from));
///     let largest = row.and_then(|row| row.fold(f32::MIN, f32::max));
///     largest.unwrap_or(f32::NAN)
/// }
///
/// let (mut values, mut shape) = ([1.0_f32, 3.0, 2.0], [3]);
/// let tensor = DLTensor {
///     data: values.as_mut_ptr().cast(),
///     device: Device::CPU,
///     ndim: 1,
///     dtype: DType::F32,
///     shape: shape.as_mut_ptr(),
///     strides: std::ptr::null_mut(),
///     byte_offset: 0,
/// };
/// // SAFETY: the tensor describes `values`.
/// assert_eq!(unsafe { largest(&tensor) }, 3.0);
/// ```
pub struct BorrowedTensor<'a> {
    import: Import,
    marker: PhantomData<&'a [u8]>,
}

impl<'a> BorrowedTensor<'a> {
    /// Reads and checks a tensor. The struct and its lists are copied, so only the memory has to live for the lifetime.
    ///
    /// A bare tensor has no flags, so the caller says who may write. For CUDA memory the stream of the library is unknown,
    /// unless [`with_stream`](Self::with_stream) names it. Whoever uses the array then waits for all work of the memory's
    /// context, and a [`LaunchScope`](crate::LaunchScope) makes all later work of the context wait.
    ///
    /// # Errors
    ///
    /// As [`ManagedTensor::info`](crate::protocols::dlpack::ManagedTensor::info) and
    /// [`Import::from_dlpack`](crate::Import::from_dlpack); [`ErrorKind::NullPointer`] for a null `tensor`.
    ///
    /// # Safety
    ///
    /// 1. `tensor` is null or points to a `DLTensor`, whose `shape` and `strides` are null or point to `ndim` numbers each.
    ///    All are live during this call.
    /// 2. The memory that it describes is live and initialized during the lifetime of the result, on the device that it
    ///    names. The library orders what it does with device memory later after the work that is pending then.
    /// 3. With [`Mutability::Writable`], the memory may be written during that time. With
    ///    [`Mutability::UniqueOwner`], nothing else uses it meanwhile.
    pub unsafe fn new(tensor: *const DLTensor, mutability: Mutability) -> Result<Self> {
        let mut slot = ImportSlot::new();
        // SAFETY: as the caller promises.
        let filled = unsafe { fill(&mut slot, tensor, mutability, Verification::Full) }?;
        Ok(Self { import: slot.into_import(filled), marker: PhantomData })
    }

    /// Makes a derived struct of a tensor: as [`new`](Self::new), [`with_stream`](Self::with_stream) if `stream` returns one for the
    /// device, and [`into_array`](Self::into_array), but without a move of the tensor between these. Nobody asks the driver about memory
    /// that the library has just allocated (`is_new`) in the primary context of its device.
    ///
    /// # Errors
    ///
    /// As these.
    ///
    /// # Safety
    ///
    /// As these.
    #[doc(hidden)]
    pub unsafe fn array<A: FromArray + BorrowedFor<'a>>(
        tensor: *const DLTensor,
        mutability: Mutability,
        is_new: bool,
        stream: impl FnOnce(Device) -> Option<StreamHandle>,
    ) -> Result<A> {
        let mut slot = ImportSlot::new();
        let verification = if is_new { Verification::Skipped } else { Verification::Full };
        // SAFETY: as the caller promises.
        let filled = unsafe { fill(&mut slot, tensor, mutability, verification) }?;
        let import = slot.import(&filled);
        let device = import.info.device;
        if let Some(stream) = (device != Device::CPU).then(|| stream(device)).flatten() {
            let context = import.context();
            import.put_on_callers_stream(stream, context);
        }
        assemble_named(&mut Extraction::new(import))
    }

    /// States on which stream the library works. That of CPU memory does not change.
    ///
    /// # Safety
    ///
    /// The stream is live, and all work that is pending on the memory is on it, or comes before what is queued on it later.
    #[must_use]
    pub unsafe fn with_stream(mut self, stream: StreamHandle) -> Self {
        if self.import.info.device != Device::CPU {
            let context = self.import.context();
            self.import.put_on_callers_stream(stream, context);
        }
        self
    }

    /// As [`Import::with_origin`](crate::Import::with_origin).
    #[must_use]
    pub fn with_origin(mut self, origin: impl fmt::Display) -> Self {
        self.import = self.import.with_origin(origin);
        self
    }

    /// Makes a derived struct that uses the memory in place for reading ([`Borrowed`]) or for writing ([`BorrowedMut`]), or
    /// that copies it.
    ///
    /// # Errors
    ///
    /// As [`FromArray::from_import`], with the tensor.
    pub fn into_array<A: FromArray + BorrowedFor<'a>>(self) -> Result<A, Refused<Self>> {
        A::from_import(self.import).map_err(|Refused { value, error }| {
            Refused::new(Self { import: *value, marker: PhantomData }, error)
        })
    }
}

/// Fills a slot with a tensor that is lent.
///
/// # Safety
///
/// As [`BorrowedTensor::new`].
#[inline(always)]
#[expect(clippy::inline_always, reason = "the slot is written in place")]
unsafe fn fill(
    slot: &mut ImportSlot,
    tensor: *const DLTensor,
    mutability: Mutability,
    verification: Verification,
) -> Result<Filled> {
    if tensor.is_null() {
        return Err(Error::new(ErrorKind::NullPointer, "tensor", "a null pointer", "a `DLTensor`"));
    }
    let flags = if mutability == Mutability::ReadOnly { FLAG_READ_ONLY } else { 0 };
    // SAFETY: rule 1.
    let described = slot.describe(verification, |info| unsafe { read_tensor(tensor, flags, info) })?;
    // Nothing is released, so the reach only tells the context.
    let owner = Owner::none().with_reach(described.reach);
    let filled = described.own(owner, None);
    let import = slot.import(&filled);
    import.info.description.mutability = mutability;
    if import.info.device != Device::CPU {
        // The library may work on any stream, before and after the call.
        import.info.state.placement = Placement::Unknown;
        import.change(Change::Hides);
    }
    Ok(filled)
}

// SAFETY: 1 and 3: as the creator promised. 2: the memory belongs to another library. 4: with `UniqueOwner` nothing else
// uses it, as the creator promised. 5: the memory is never freed here. 6: the import states what is pending.
unsafe impl CudaArray for BorrowedTensor<'_> {
    fn info(&self) -> Result<ArrayInfo> {
        Ok(self.import.info.clone())
    }
}

impl HasDType for BorrowedTensor<'_> {
    fn dtype_to_dispatch(&self) -> DType {
        self.import.dtype_to_dispatch()
    }

    fn named_in(&self, error: Error) -> Error {
        self.import.named_in(error)
    }
}

impl fmt::Debug for BorrowedTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BorrowedTensor").field(&self.import.info).finish()
    }
}

/// A storage, or a struct with one, that keeps memory which is lent for `'a` no longer than `'a`. The derive implements it
/// for structs.
///
/// # Safety
///
/// What [`FromArray::from_import`] or [`FromImport::from_import`](crate::storage::FromImport::from_import) makes, and all that they
/// store elsewhere, uses the memory of the import within `'a` only: because it copies, or because its type is bounded by
/// `'a`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` could outlive the call that lends it its memory",
    label = "the memory is lent for the call only",
    note = "to use it in place write `Borrowed<'_, T>` for `Lease<T>`, and `BorrowedMut<'_, T>` for `LeaseMut<T>`",
    note = "to keep the elements write a storage that copies: `Vec<T>` or `HostVec<T>`"
)]
pub unsafe trait BorrowedFor<'a> {}

// SAFETY: bounded by a part of `'a`.
unsafe impl<'a: 'b, 'b, T> BorrowedFor<'a> for Borrowed<'b, T> {}
// SAFETY: as above.
unsafe impl<'a: 'b, 'b, T> BorrowedFor<'a> for BorrowedMut<'b, T> {}

macro_rules! copies {
    ($($storage:ty),*) => { $(
        // SAFETY: a copy, which is ordered before the next work on the stream of the import.
        unsafe impl<T: Element> BorrowedFor<'_> for $storage {}
    )* };
}

copies!(Vec<T>, Box<[T]>, Arc<[T]>, HostVec<T>);

// SAFETY: as above.
unsafe impl BorrowedFor<'_> for HostBuffer {}
// SAFETY: as above.
unsafe impl BorrowedFor<'_> for CudaBuffer {}
// SAFETY: as for the storage or struct in it.
unsafe impl<'a, S: BorrowedFor<'a>> BorrowedFor<'a> for Arc<S> {}

/// An array as a `DLTensor`, lent to another library for a call: to a function of `tvm-ffi`, or to C code.
///
/// ```
/// use interop_core::lent::{BorrowedTensor, LentTensor};
/// use interop_core::storage::Mutability;
/// use interop_core::{CudaArray, HostVec, StreamHandle};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// let mut samples = Samples { values: HostVec::from([1.0_f32, 2.0]), len: 2 };
/// let lent = LentTensor::new_mut(&mut samples, StreamHandle::NothingPending)?;
/// // The library gets `lent.as_ptr()`. Here it is this crate again.
/// // SAFETY: the tensor lends memory that is borrowed as mutable while `lent` is.
/// let mut tensor = unsafe { BorrowedTensor::new(lent.as_ptr(), Mutability::Writable) }?;
/// tensor.map_inplace(|value: f32| value + 1.0)?;
/// drop((tensor, lent));
/// assert_eq!(samples.to_vec::<f32>()?, [2.0, 3.0]);
/// # Ok::<(), interop_core::Error>(())
/// ```
pub struct LentTensor<'a> {
    tensor: DLTensor,
    /// The extents, then the strides. A `Vec`, because a move of a `Box` would end the pointers into it.
    _numbers: Vec<i64>,
    marker: PhantomData<&'a [u8]>,
}

impl<'a> LentTensor<'a> {
    /// Lends an array for reading. A bare tensor cannot say so: the library must not write to it.
    ///
    /// `stream` is the stream on which the library works. It is made to wait for pending work on the array; for
    /// [`NothingPending`](StreamHandle::NothingPending) the host waits. If the library
    /// uses the array later than this function's stream goes on, call
    /// [`wait_for_stream`](CudaArray::wait_for_stream) after the call.
    ///
    /// # Errors
    ///
    /// As [`CudaArray::info`] and [`CudaArray::make_stream_wait`]; [`ErrorKind::DType`] for struct elements with different
    /// fields; [`ErrorKind::Unsupported`] for padded elements of less than a byte.
    pub fn new(array: &'a impl CudaArray, stream: StreamHandle) -> Result<Self> {
        Self::from_info(&array.info()?, stream)
    }

    /// As [`new`](Self::new), for reading and writing.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); [`ErrorKind::ReadOnly`] for read-only memory, [`ErrorKind::Strides`] if indices share elements.
    pub fn new_mut(array: &'a mut impl CudaArray, stream: StreamHandle) -> Result<Self> {
        let info = array.info()?;
        info.check_writable()?;
        Self::from_info(&info, stream)
    }

    fn from_info(info: &ArrayInfo, stream: StreamHandle) -> Result<Self> {
        let info = info.without_struct_type()?;
        info.device().check()?;
        if info.is_padded() {
            let found = text!("padded {}", info.dtype());
            let allowed = "packed elements: a bare tensor has no flag for padded ones";
            return Err(Error::new(ErrorKind::Unsupported, "dtype", found, allowed));
        }
        hand_over(&info, info.consumer(stream))?;
        let (shape, strides) = (info.shape().iter(), info.strides().iter());
        let numbers = shape.map(|extent| *extent as i64).chain(strides.map(|stride| *stride as i64));
        let mut numbers: Vec<i64> = numbers.collect();
        let tensor = tensor_of(&info, numbers.as_mut_ptr());
        Ok(Self { tensor, _numbers: numbers, marker: PhantomData })
    }

    /// Returns a pointer to the tensor. It is valid as long as this value is, and is not moved.
    #[must_use]
    pub fn as_ptr(&self) -> *const DLTensor {
        &raw const self.tensor
    }
}

impl fmt::Debug for LentTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LentTensor").field(&self.tensor).finish()
    }
}
