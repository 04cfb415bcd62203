//! The FFI boundary to Python: converts errors and panics to Python exceptions.
#![expect(unsafe_code, reason = "sets exceptions past PyO3, which panics when there is no memory for one")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::ffi;
use pyo3::prelude::*;

/// Runs the body of a function that Python calls. If it fails, sets an exception and returns `None`.
///
/// `PyO3` creates the text of an exception when it is raised, and panics if it cannot allocate. That panic is caught
/// too.
///
/// # Safety
///
/// The thread is attached.
#[inline]
pub(crate) unsafe fn catch_panics<R>(run: impl FnOnce(Python<'_>) -> PyResult<R>) -> Option<R> {
    // `Python::attach` is not used, because it fails while the interpreter ends and still runs code.
    // SAFETY: the thread is attached, as the caller promises.
    let py = unsafe { Python::assume_attached() };
    let raise = |error: PyErr| {
        // PyO3 does not know that the thread is attached, so it deferred the drops of Python references on the way
        // here, such as a replaced exception and all that it refers to. `try_attach` makes it drop them.
        let _ = Python::try_attach(|_| ());
        error.restore(py);
    };
    let done = catch_unwind(AssertUnwindSafe(|| run(py).map_err(raise).ok()));
    done.unwrap_or_else(|payload| {
        // The payload is leaked, because its drop could panic again.
        core::mem::forget(payload);
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_Occurred() }.is_null() {
            // SAFETY: the class is a static of the interpreter.
            let class = unsafe { ffi::PyExc_RuntimeError };
            // SAFETY: the arguments are a class and a C string. If the exception cannot be allocated, Python sets a
            // `MemoryError`.
            unsafe { ffi::PyErr_SetString(class, c"a panic in a `CudaArray`".as_ptr()) };
        }
        None
    })
}
