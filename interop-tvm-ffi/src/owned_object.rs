//! References to objects of other libraries: tensors that functions return.
#![expect(unsafe_code, reason = "releases objects of other libraries")]

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use interop_core::dlpack::{DLTensor, ManagedTensor};
use interop_core::{CudaArray, Import, StreamHandle};

use crate::abi::{TVMFFIAny, TVMFFIObject, index};
use crate::call::{Call, Host};
use crate::error::CallError;
use crate::runtime::{Functions, Runtime};
use crate::torch::library::Torch;

/// Releases a reference to an object.
pub(crate) type Release = unsafe extern "C" fn(*mut c_void) -> i32;

/// A reference to an object: a tensor of TVM FFI or of `PyTorch`.
pub(crate) struct OwnedObject {
    pub(crate) object: *mut c_void,
    release: Release,
}

impl OwnedObject {
    /// # Safety
    ///
    /// `object` is a reference, which `release` releases and nobody else.
    pub(crate) const unsafe fn new(object: *mut c_void, release: Release) -> Self {
        Self { object, release }
    }

    /// A tensor of the caller's library that owns an array, with its memory.
    pub(crate) fn from_array(
        array: impl CudaArray + Send + 'static,
        call: &Call<'_>,
    ) -> Result<Self, CallError> {
        let stream = call.stream(array.info()?.device()).unwrap_or(StreamHandle::LegacyDefault);
        match call.host {
            Host::TvmFfi => {
                let functions = functions()?;
                Self::from_managed(array.into_dlpack_as(stream)?, functions)
            }
            Host::Torch(torch) => torch.adopt(array.into_dlpack_as(stream)?),
        }
    }

    fn from_managed(tensor: ManagedTensor, functions: &Functions) -> Result<Self, CallError> {
        let (tensor, mut object) = (tensor.into_raw(), core::ptr::null_mut());
        // SAFETY: an owned tensor, without requirements, and a pointer that is valid for a write.
        if unsafe { (functions.from_dlpack)(tensor, 0, 0, &raw mut object) } != 0 {
            // SAFETY: the library has not taken the tensor.
            drop(unsafe { ManagedTensor::from_raw(tensor) });
            return Err(CallError::RAISED);
        }
        // SAFETY: the library has made this object, which owns the tensor.
        Ok(unsafe { Self::new(object, functions.dec_ref) })
    }

    /// An array in the memory of this tensor, with a reference of its own.
    ///
    /// # Errors
    ///
    /// If the tensor has no memory.
    ///
    /// # Safety
    ///
    /// It is a new tensor of the library that calls, in whose memory nobody else reads or writes.
    pub(crate) unsafe fn import(&self, host: Host) -> Result<Import, CallError> {
        let (other, tensor, release): (Self, DLTensor, unsafe fn(NonNull<()>)) = match host {
            Host::TvmFfi => {
                let functions = functions()?;
                // SAFETY: a live object.
                unsafe { (functions.inc_ref)(self.object) };
                // SAFETY: the reference that was just made.
                let other = unsafe { Self::new(self.object, functions.dec_ref) };
                // SAFETY: an object that is a tensor: this follows its header.
                let tensor =
                    unsafe { self.object.cast::<TVMFFIObject>().wrapping_add(1).cast::<DLTensor>().read() };
                (other, tensor, release_tvm_ffi)
            }
            Host::Torch(torch) => {
                // SAFETY: a live tensor.
                let other = unsafe { torch.another(self.object) }?;
                // SAFETY: a live tensor.
                let tensor = unsafe { torch.describe(self.object, true) }?;
                (other, tensor, release_torch)
            }
        };
        let Some(value) = NonNull::new(other.object.cast::<()>()) else { return Err(CallError::RAISED) };
        // SAFETY: 1: the lists are those of the tensor. 2: as the caller promises, and the memory lives with the reference. 3: both
        // libraries release a tensor on any thread.
        let import = unsafe { Import::from_bare_tensor(&raw const tensor, value, release) }?;
        // The import has this reference now.
        let _ = ManuallyDrop::new(other);
        Ok(import)
    }

    /// Gives the reference away.
    pub(crate) fn into_raw(self) -> *mut c_void {
        ManuallyDrop::new(self).object
    }

    /// Gives the reference to the caller.
    pub(crate) fn into_any(self) -> TVMFFIAny {
        TVMFFIAny::new(index::TENSOR, self.into_raw().expose_provenance() as u64)
    }
}

impl Drop for OwnedObject {
    fn drop(&mut self) {
        // SAFETY: the reference is owned, and this is its only release.
        unsafe { (self.release)(self.object) };
    }
}

/// # Safety
///
/// `object` is an owned reference to a tensor of TVM FFI.
unsafe fn release_tvm_ffi(object: NonNull<()>) {
    if let Some(functions) = Runtime::functions() {
        // SAFETY: as the caller promises.
        unsafe { (functions.dec_ref)(object.as_ptr().cast()) };
    }
}

/// # Safety
///
/// `handle` is an owned reference to a tensor of `PyTorch`.
unsafe fn release_torch(handle: NonNull<()>) {
    // SAFETY: as the caller promises.
    unsafe { (Torch::of_kernel().delete_tensor)(handle.as_ptr().cast()) };
}

/// The functions with which results are made.
pub(crate) fn functions() -> Result<&'static Functions, CallError> {
    let missing = "`libtvm_ffi`: not loaded; an array as a result needs it";
    Runtime::functions().ok_or_else(|| CallError::new(c"RuntimeError", missing))
}
