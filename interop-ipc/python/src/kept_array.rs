//! The owner of an offered array, which the thread of the office drops.

#![expect(unsafe_code, reason = "wraps the owner of an import, and asks the interpreter for a call")]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use interop_core::Import;
use interop_core::python::{deferred_ref_count, release_deferred_refs};
use interop_core::storage::Owner;
use pyo3::ffi;
use pyo3::prelude::*;

/// A thread that does not have the interpreter's lock defers references to Python objects until the next call of this module, which
/// may never come. This owner asks the main thread for that call. The thread of the office does not wait for the lock, because readers
/// wait for that thread.
struct KeptArray(Option<Import>);

impl Drop for KeptArray {
    fn drop(&mut self) {
        drop(self.0.take());
        // SAFETY: the function has no preconditions.
        let is_initialized = unsafe { ffi::Py_IsInitialized() } != 0;
        if is_initialized && deferred_ref_count() != 0 {
            // SAFETY: any thread may call it while there is an interpreter. If its queue is full, a later call drops the references.
            unsafe { ffi::Py_AddPendingCall(Some(release), null_mut()) };
        }
    }
}

/// Called by the main thread, which is attached.
extern "C" fn release(_: *mut c_void) -> c_int {
    Python::attach(release_deferred_refs);
    0
}

/// Returns the import for the office to keep.
pub(crate) fn kept_by_office(import: Import) -> Import {
    let info = import.info().clone();
    // SAFETY: 1: the owner keeps the import, and that the memory. 2: nothing refers to the memory but the description.
    unsafe { Import::from_parts(info, Owner::new(KeptArray(Some(import)))) }
}
