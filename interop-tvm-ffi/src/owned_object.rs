//! References to objects of other libraries: tensors that functions return.
#![expect(unsafe_code, reason = "releases objects of other libraries")]

use core::ffi::c_void;
use core::mem::ManuallyDrop;

use crate::abi::{TVMFFIAny, index};

/// Releases a reference to an object.
pub(crate) type Release = unsafe extern "C-unwind" fn(*mut c_void) -> i32;

/// A reference to an object: a tensor of TVM FFI, or a tensor or a string of `PyTorch`.
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
