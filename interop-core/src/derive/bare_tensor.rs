//! Bare `DLTensor`s, which own nothing: those that another library lends, and those that are lent to it.
#![expect(
    unsafe_code,
    reason = "reads tensors that the caller promises to be valid, and implements `CudaArray`"
)]

use core::fmt;
use core::marker::PhantomData;

use crate::array::info::ArrayInfo;
use crate::array::mutability::Mutability;
use crate::cuda;
use crate::cuda::memory_check::Verification;
use crate::derive::cuda_array::CudaArray;
use crate::driver::device::Device;
use crate::driver::stream_handle::{PendingWork, StreamHandle};
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::array_view::check_writable;
use crate::protocols::dlpack::abi::{DLTensor, FLAG_READ_ONLY};
use crate::protocols::dlpack::export::tensor_of;
use crate::protocols::dlpack::managed_tensor::read_tensor;

/// A tensor that another library lends for a time: `TensorView` of `tvm-ffi`, an argument of PyTorch's stable ABI, a
/// buffer of XLA. It is a [`CudaArray`], so it can be viewed, copied and passed to kernels.
///
/// To keep such memory beyond the call, copy it, or take a managed tensor by [`Import`](crate::Import).
///
/// ```
/// use interop_core::dlpack::DLTensor;
/// use interop_core::{BorrowedTensor, CudaArray, DType, Device, Mutability};
///
/// /// As a library calls it from C.
/// ///
/// /// # Safety
/// ///
/// /// `tensor` points to a tensor that is live during the call.
/// unsafe extern "C" fn largest(tensor: *const DLTensor) -> f32 {
///     // SAFETY: the tensor and its memory are live during the call, and nobody writes to it meanwhile.
///     let tensor = unsafe { BorrowedTensor::new(tensor, Mutability::ReadOnly) };
///     let largest = tensor.and_then(|tensor| tensor.fold(f32::MIN, f32::max));
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
    info: ArrayInfo,
    marker: PhantomData<&'a [u8]>,
}

impl BorrowedTensor<'_> {
    /// Reads and checks a tensor. The struct and its lists are copied, so only the memory has to live for the lifetime.
    ///
    /// A bare tensor has no flags, so the caller says who may write. For CUDA memory it is unknown on which stream work is
    /// pending, unless [`with_stream`](Self::with_stream) names it.
    ///
    /// # Errors
    ///
    /// As [`ManagedTensor::info`](crate::dlpack::ManagedTensor::info) and
    /// [`Import::from_dlpack`](crate::Import::from_dlpack); [`ErrorKind::NullPointer`] for a null `tensor`.
    ///
    /// # Safety
    ///
    /// 1. `tensor` is null or points to a `DLTensor`, whose `shape` and `strides` are null or point to `ndim` numbers each.
    ///    All are live during this call.
    /// 2. The memory that it describes is live and initialized during the lifetime of the result, on the device that it
    ///    names.
    /// 3. With [`Mutability::Writable`], the memory may be written during that time. With
    ///    [`Mutability::UniqueOwner`], nothing else uses it meanwhile.
    pub unsafe fn new(tensor: *const DLTensor, mutability: Mutability) -> Result<Self> {
        if tensor.is_null() {
            return Err(Error::new(ErrorKind::NullPointer, "tensor", "a null pointer", "a `DLTensor`"));
        }
        let mut info = ArrayInfo::EMPTY;
        let flags = if mutability == Mutability::ReadOnly { FLAG_READ_ONLY } else { 0 };
        // SAFETY: rule 1.
        unsafe { read_tensor(tensor, flags, &mut info) }?;
        cuda::check(&info, Verification::Full)?;
        Ok(Self { info: ArrayInfo { mutability, ..info }, marker: PhantomData })
    }

    /// States on which stream the library works. That of CPU memory does not change.
    ///
    /// # Safety
    ///
    /// The stream is live, and all work that is pending on the memory is on it, or comes before what is queued on it later.
    #[must_use]
    pub unsafe fn with_stream(mut self, stream: StreamHandle) -> Self {
        if self.info.device() != Device::CPU {
            self.info.pending = PendingWork::on(stream);
        }
        self
    }
}

// SAFETY: 1 and 3: as the creator promised. 2: the memory belongs to another library. 4: with `UniqueOwner` nothing else
// uses it, as the creator promised.
unsafe impl CudaArray for BorrowedTensor<'_> {
    fn info(&self) -> Result<ArrayInfo> {
        Ok(self.info.clone())
    }
}

impl fmt::Debug for BorrowedTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BorrowedTensor").field(&self.info).finish()
    }
}

/// An array as a `DLTensor`, lent to another library for a call: to a function of `tvm-ffi`, or to C code.
///
/// ```
/// use interop_core::{BorrowedTensor, CudaArray, HostVec, LentTensor, Mutability, StreamHandle};
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// let mut samples = Samples { values: HostVec::from_slice(&[1.0_f32, 2.0]), len: 2 };
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
        check_writable(&info)?;
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
        cuda::hand_over(&info, stream)?;
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
