//! Saves and restores the current exception around code that must neither lose nor leave one.
#![expect(unsafe_code, reason = "saves and restores exceptions past PyO3")]

use core::ptr::null_mut;

use pyo3::ffi;

/// Runs code that may call Python. Saves the current exception before and restores it afterwards.
///
/// An exception that the code leaves set is reported like an exception in `__del__`, because no caller can catch it.
///
/// # Safety
///
/// The thread is attached.
#[allow(deprecated, reason = "what replaces the two since 3.12 is not in the stable ABI of 3.11")]
pub(crate) unsafe fn with_saved_exception(run: impl FnOnce()) {
    // SAFETY: the thread is attached.
    if unsafe { ffi::PyErr_Occurred() }.is_null() {
        // The common case: no exception is set.
        run();
        // SAFETY: as above.
        return unsafe { report_exception() };
    }
    let (mut class, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // `PyErr::fetch` is not used, because it resumes a panic that was raised as an exception.
    // SAFETY: the thread is attached, and the three pointers are valid for writes.
    unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut value, &raw mut traceback) };
    run();
    // SAFETY: as above.
    unsafe { report_exception() };
    // SAFETY: these are the fetched references, or null without an exception.
    unsafe { ffi::PyErr_Restore(class, value, traceback) };
}

/// Reports the current exception, if one is set, through `sys.unraisablehook`.
///
/// # Safety
///
/// The thread is attached.
pub(crate) unsafe fn report_exception() {
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        // SAFETY: as above. A null object is allowed.
        unsafe { ffi::PyErr_WriteUnraisable(null_mut()) };
    }
}
