//! New arrays in memory of the caller.
#![expect(unsafe_code, reason = "takes memory of the library's allocator")]

use core::ffi::c_void;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;

use interop_core::cuda::CudaBuffer;
use interop_core::lent::BorrowedFor;
use interop_core::protocols::dlpack::DLTensor;
use interop_core::storage::HostBuffer;
use interop_core::{CudaArray, DType, Device, FromArray, StreamHandle};

use crate::abi::{TVMFFIAny, TVMFFIObject};
use crate::argument::ValueKind;
use crate::call::{Call, Host};
use crate::error::CallError;
use crate::operator::signature::Kind;
use crate::owned_object::OwnedObject;
use crate::return_value::ReturnValue;
use crate::runtime::Functions;

/// A new array in memory of the caller's library, as a result. It dereferences to the struct, over `BorrowedMut<'c, T>`:
/// `'c` is the time of the call, in which the memory lives, also if nothing returns it.
///
/// `NumPy`, `CuPy` and C have no allocator that TVM FFI knows. They get a `tvm_ffi.Tensor` in memory of this crate, which
/// `numpy.from_dlpack` and `cupy.from_dlpack` use in place.
///
/// [`Call::new_like`] and [`Call::new_array`] make it. A struct that copies would lose what is written to it, so it does not compile:
///
/// ```compile_fail,E0080
/// # use interop_core::arrays::Array1;
/// # use interop_tvm_ffi::{Call, CallError, NewArray};
/// fn lost(call: &Call<'_>, like: Array1<Vec<f32>>) -> Result<NewArray<Array1<Vec<f32>>>, CallError> {
///     call.new_like(&like)
/// }
/// interop_tvm_ffi::export! { lost(call, like) }
/// ```
pub struct NewArray<A> {
    array: A,
    /// The tensor, which the call keeps.
    tensor: *mut c_void,
}

impl Call<'_> {
    /// A new array with the shape, the element type and the device of another one, in C order. Write all elements: on a device it
    /// contains anything. On the host it contains zeros, because safe code can read an element before it writes it.
    ///
    /// # Errors
    ///
    /// As [`new_array`](Self::new_array).
    pub fn new_like<'c, A: FromArray + BorrowedFor<'c>>(
        &'c self,
        like: &impl CudaArray,
    ) -> Result<NewArray<A>, CallError> {
        let info = like.info()?;
        self.new_array(info.shape(), info.dtype(), info.device())
    }

    /// As [`new_like`](Self::new_like), with any shape, element type and device.
    ///
    /// # Errors
    ///
    /// If no library has called that allocates arrays, if the allocation fails, and as [`FromArray::from_import`].
    pub fn new_array<'c, A: FromArray + BorrowedFor<'c>>(
        &'c self,
        shape: &[usize],
        dtype: DType,
        device: Device,
    ) -> Result<NewArray<A>, CallError> {
        const { assert!(A::DATA_FIELD.is_written(), "a new array has the storage `BorrowedMut<'_, T>`") };
        let mut numbers = c_order(shape);
        let (extents, strides) = numbers.split_at_mut(shape.len());
        let mut like = DLTensor {
            data: null_mut(),
            device,
            ndim: i32::try_from(shape.len()).unwrap_or(i32::MAX),
            dtype,
            shape: extents.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let (tensor, is_own) = self.allocate(&mut like, shape)?;
        let object = tensor.object;
        self.keep(tensor);
        if like.data.is_null() && !shape.contains(&0) {
            return Err(CallError::new(c"ValueError", NO_MEMORY));
        }
        // SAFETY: a new tensor in C order, with zeros on the host. The call keeps it.
        Ok(NewArray { array: unsafe { self.array(&raw const like, !is_own) }?, tensor: object })
    }

    /// A new tensor of the caller's library, with zeros on the host, and whether its memory is of this crate. `like` receives its
    /// address.
    fn allocate(&self, like: &mut DLTensor, shape: &[usize]) -> Result<(OwnedObject, bool), CallError> {
        // Too many elements fail to be allocated.
        let len = shape.iter().fold(1, |len: usize, extent| len.saturating_mul(*extent));
        let tensor = match self.host {
            Host::Torch(torch) => {
                let tensor = torch.allocate(like)?;
                // SAFETY: a live tensor.
                like.data = unsafe { torch.address(tensor.object) }?;
                tensor
            }
            Host::TvmFfi => {
                let functions = Functions::of_results()?;
                let is_own = functions.allocator().is_null();
                let tensor =
                    if is_own { self.own_memory(like, shape, len) } else { functions.allocate(like) }?;
                let payload = tensor.object.cast::<TVMFFIObject>().wrapping_add(1).cast::<DLTensor>();
                // SAFETY: an object that is a tensor: this follows its header.
                let DLTensor { data, byte_offset, .. } = unsafe { payload.read() };
                (like.data, like.byte_offset) = (data, byte_offset);
                if is_own {
                    return Ok((tensor, true));
                }
                tensor
            }
        };
        if like.device.device_type.is_host_accessible() && !like.data.is_null() {
            let bytes = len.saturating_mul(like.dtype.item_bits(false)).div_ceil(8);
            let start = like.data.wrapping_byte_add(usize::try_from(like.byte_offset).unwrap_or(0));
            // SAFETY: the library has allocated these bytes for the tensor, which nobody else has.
            unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        }
        Ok((tensor, false))
    }

    /// A tensor in memory of this crate, for a caller whose library has no allocator that TVM FFI knows.
    fn own_memory(&self, like: &DLTensor, shape: &[usize], len: usize) -> Result<OwnedObject, CallError> {
        let shape = shape.to_vec();
        if like.device == Device::CPU {
            return self.owning(Memory { memory: HostBuffer::zeroed(like.dtype, len)?, shape });
        }
        let stream = self.stream(like.device).unwrap_or(StreamHandle::LegacyDefault);
        let memory = CudaBuffer::zeroed_on(stream, like.device.device_id, like.dtype, len)?;
        self.owning(Memory { memory, shape })
    }
}

/// The extents, then the strides of an array in C order.
fn c_order(shape: &[usize]) -> Vec<i64> {
    let mut numbers = vec![1; 2 * shape.len()];
    let (extents, strides) = numbers.split_at_mut(shape.len());
    let mut stride = 1_i64;
    for ((to, next), extent) in extents.iter_mut().zip(strides).zip(shape).rev() {
        *to = i64::try_from(*extent).unwrap_or(i64::MAX);
        *next = stride;
        stride = stride.saturating_mul((*to).max(1));
    }
    numbers
}

/// New memory of this crate.
#[derive(CudaArray)]
#[cuda_array(export)]
struct Memory<S> {
    #[cuda_array(data)]
    memory: S,
    #[cuda_array(shape)]
    shape: Vec<usize>,
}

/// The error for a new tensor that has no memory.
const NO_MEMORY: &str = "`result`: the caller's library has allocated no memory: found a null address; under `FakeTensorMode` and `functionalize` of \
     PyTorch tensors have none: call an operator with `torch.library.register_fake`";

impl<A> ReturnValue<ValueKind> for NewArray<A> {
    const RETURNS: Kind = Kind::Tensor { is_written: false };

    fn into_value(self, call: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        let Self { array, tensor } = self;
        drop(array);
        let tensor = call.give_up(tensor);
        let other = "`result`: found a new array of another call, allowed: one of this call";
        tensor.map(OwnedObject::into_any).ok_or_else(|| CallError::new(c"RuntimeError", other))
    }
}

impl<A> NewArray<A> {
    /// The array without its type, as the result of a function for several element types.
    ///
    /// ```
    /// use interop_core::arrays::ArrayD;
    /// use interop_core::lent::{Borrowed, BorrowedMut, BorrowedTensor};
    /// use interop_core::{CudaArray, dispatch};
    /// use interop_tvm_ffi::{Call, CallError, NewArray};
    ///
    /// fn squared(call: &Call<'_>, from: BorrowedTensor<'_>) -> Result<NewArray<()>, CallError> {
    ///     Ok(dispatch!(from, [f32, f64], T => {
    ///         let from: ArrayD<Borrowed<'_, T>> = from.into_array()?;
    ///         let mut to: NewArray<ArrayD<BorrowedMut<'_, T>>> = call.new_like(&from)?;
    ///         to.zip_map_inplace(&from, |_: T, value: T| value * value)?;
    ///         to.untyped()
    ///     })?)
    /// }
    ///
    /// interop_tvm_ffi::export! { squared(call, from) }
    /// ```
    #[must_use]
    pub fn untyped(self) -> NewArray<()> {
        NewArray { array: (), tensor: self.tensor }
    }
}

impl<A> Deref for NewArray<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.array
    }
}

impl<A> DerefMut for NewArray<A> {
    fn deref_mut(&mut self) -> &mut A {
        &mut self.array
    }
}
