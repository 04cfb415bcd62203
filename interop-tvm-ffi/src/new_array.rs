//! New arrays in memory of the caller.
#![expect(unsafe_code, reason = "takes memory of the library's allocator")]

use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;

use interop_core::cuda::CudaBuffer;
use interop_core::dlpack::DLTensor;
use interop_core::storage::HostBuffer;
use interop_core::{CudaArray, DType, Device, FromArray, Import, StreamHandle};

use crate::abi::TVMFFIAny;
use crate::argument::ValueKind;
use crate::call::{Call, Host};
use crate::error::CallError;
use crate::operator::signature::Returns;
use crate::owned_object::{OwnedObject, functions};
use crate::return_value::ReturnValue;
use crate::runtime::Functions;

/// A new array in memory of the caller's library, as a result. It dereferences to the struct.
///
/// `NumPy`, `CuPy` and C have no allocator that TVM FFI knows. They get a `tvm_ffi.Tensor` in memory of this crate, which
/// `numpy.from_dlpack` and `cupy.from_dlpack` use in place.
///
/// [`Call::new_like`] and [`Call::new_array`] make it.
pub struct NewArray<A> {
    /// Keeps the memory by itself, so safe code may exchange it.
    array: A,
    object: OwnedObject,
}

impl Call<'_> {
    /// A new array with the shape, the element type and the device of another one. It contains zeros on the host, and
    /// anything on a device, so write all elements.
    ///
    /// # Errors
    ///
    /// As [`new_array`](Self::new_array).
    pub fn new_like<A: FromArray>(&self, like: &impl CudaArray) -> Result<NewArray<A>, CallError> {
        let info = like.info()?;
        self.new_array(info.shape(), info.dtype(), info.device())
    }

    /// As [`new_like`](Self::new_like), with any shape, element type and device.
    ///
    /// # Errors
    ///
    /// If no library has called that allocates arrays, if the allocation fails, and as [`FromArray::from_import`].
    pub fn new_array<A: FromArray>(
        &self,
        shape: &[usize],
        dtype: DType,
        device: Device,
    ) -> Result<NewArray<A>, CallError> {
        let like = Like { shape, dtype, device };
        let (object, is_own) = match self.host {
            Host::Torch(torch) => (torch.allocate(shape, dtype, device)?, false),
            Host::TvmFfi => {
                let functions = functions()?;
                let is_own = functions.allocator().is_null();
                (if is_own { self.own_memory(like) } else { allocated(functions, like) }?, is_own)
            }
        };
        // SAFETY: a new tensor, which this function only has.
        let mut import = unsafe { object.import(self.host) }.map_err(|error| no_memory(&error))?;
        if !is_own {
            clear(&mut import);
        }
        if let Some(stream) = self.stream(device) {
            // SAFETY: 1: the caller keeps the stream during the call. 2: its allocator frees in the order of this stream.
            import = unsafe { import.with_callers_stream(stream) };
        }
        Ok(NewArray { array: A::from_import(import)?, object })
    }

    /// A tensor in memory of this crate, for a caller whose library has no allocator that TVM FFI knows.
    fn own_memory(&self, like: Like<'_>) -> Result<OwnedObject, CallError> {
        let (len, shape) = (like.len(), like.shape.to_vec());
        if like.device == Device::CPU {
            let memory = HostBuffer::zeroed(like.dtype, len)?;
            return OwnedObject::from_array(Memory { memory, shape }, self);
        }
        let stream = self.stream(like.device).unwrap_or(StreamHandle::LegacyDefault);
        let memory = CudaBuffer::zeroed_on(stream, like.device.device_id, like.dtype, len)?;
        OwnedObject::from_array(Memory { memory, shape }, self)
    }
}

/// The array to make.
#[derive(Clone, Copy)]
struct Like<'a> {
    shape: &'a [usize],
    dtype: DType,
    device: Device,
}

impl Like<'_> {
    /// The number of elements. One that is too large fails to be allocated.
    fn len(self) -> usize {
        self.shape.iter().fold(1, |len, extent| len.saturating_mul(*extent))
    }
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

/// A tensor in new memory of the caller's library.
fn allocated(functions: &Functions, like: Like<'_>) -> Result<OwnedObject, CallError> {
    let mut extents: Vec<i64> = like.shape.iter().map(|extent| *extent as i64).collect();
    let mut prototype = DLTensor {
        data: null_mut(),
        device: like.device,
        ndim: i32::try_from(extents.len()).unwrap_or(i32::MAX),
        dtype: like.dtype,
        shape: extents.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let mut object = null_mut();
    // SAFETY: the prototype is complete, and the pointer is valid for a write.
    if unsafe { (functions.tensor_alloc)(&raw mut prototype, &raw mut object) } != 0 || object.is_null() {
        return Err(CallError::RAISED);
    }
    // SAFETY: the library has made this object, and given the reference away.
    Ok(unsafe { OwnedObject::new(object, functions.dec_ref) })
}

/// Fills new memory of the host with zeros, because the caller's library has not initialized it.
fn clear(new: &mut Import) {
    let info = new.info();
    if info.device().device_type.is_host_accessible() {
        let range = info.byte_range();
        let start = core::ptr::with_exposed_provenance_mut::<u8>(range.start);
        // SAFETY: the import has checked the description of this memory, which is new, so that nobody else has it.
        unsafe { start.write_bytes(0, range.len()) };
    }
}

/// The error for a new tensor that has no memory.
#[cold]
fn no_memory(error: &CallError) -> CallError {
    let text = format!(
        "`result`: the caller's library has allocated no memory: {error}; under `FakeTensorMode` and `functionalize` of \
         PyTorch tensors have none: call an operator with `torch.library.register_fake`"
    );
    CallError::new(c"ValueError", text)
}

impl<A> ReturnValue<ValueKind> for NewArray<A> {
    const RETURNS: Returns = Returns::Tensor;

    fn into_value(self, _: &Call<'_>) -> Result<TVMFFIAny, CallError> {
        let Self { array, object } = self;
        drop(array);
        Ok(object.into_any())
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
