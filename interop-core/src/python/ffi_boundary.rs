//! The border to Python's C code: an error or a panic becomes a Python exception.
#![expect(unsafe_code, reason = "sets exceptions past PyO3, which panics when there is no memory for one")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::ffi;
use pyo3::prelude::*;

/// Runs the body of a function that Python calls; `None` with an exception set when it fails.
///
/// `PyO3` makes the text of an exception when it is raised, and panics when there is no memory for it: that is caught too.
///
/// # Safety
///
/// The thread is attached.
#[inline]
pub(crate) unsafe fn catch_panics<R>(run: impl FnOnce(Python<'_>) -> PyResult<R>) -> Option<R> {
    // Not `Python::attach`, which gives up on an interpreter that is ending and still runs code.
    // SAFETY: the thread is attached, as the caller promises.
    let py = unsafe { Python::assume_attached() };
    let raise = |error: PyErr| {
        // PyO3 was not told that the thread is attached, and keeps what was dropped on the way here, such as an exception
        // that another took the place of, with all that it refers to. It lets go of that when it is told.
        let _ = Python::try_attach(|_| ());
        error.restore(py);
    };
    let done = catch_unwind(AssertUnwindSafe(|| run(py).map_err(raise).ok()));
    done.unwrap_or_else(|payload| {
        // It is a value with a drop of its own, which could panic again: it is leaked.
        core::mem::forget(payload);
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_Occurred() }.is_null() {
            // SAFETY: a static class.
            let class = unsafe { ffi::PyExc_RuntimeError };
            // SAFETY: a class and a C string; where there is no memory for the exception, that becomes a `MemoryError`.
            unsafe { ffi::PyErr_SetString(class, c"a panic in a `CudaArray`".as_ptr()) };
        }
        None
    })
}
