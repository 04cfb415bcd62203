//! Code that must not lose or leave an exception: the current one is saved and restored around it.
#![expect(unsafe_code, reason = "saves and restores exceptions past PyO3")]

use core::ptr::null_mut;

use pyo3::ffi;

/// Runs what may run Python code; an exception that is on its way survives it, and one that it leaves behind is reported
/// as those of `__del__` are, because nobody is there to catch it.
///
/// # Safety
///
/// The thread is attached.
#[allow(deprecated, reason = "what replaces the two since 3.12 is not in the stable ABI of 3.10")]
pub(crate) unsafe fn with_saved_exception(run: impl FnOnce()) {
    // SAFETY: the thread is attached.
    if unsafe { ffi::PyErr_Occurred() }.is_null() {
        // Nothing is on its way, as nearly always.
        run();
        // SAFETY: as above.
        return unsafe { report_exception() };
    }
    let (mut class, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // Not through PyO3, which lets a panic that travels as an exception loose.
    // SAFETY: the thread is attached; three places for three references.
    unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut value, &raw mut traceback) };
    run();
    // SAFETY: as above.
    unsafe { report_exception() };
    // SAFETY: the references that were fetched; null for no exception.
    unsafe { ffi::PyErr_Restore(class, value, traceback) };
}

/// Has `sys.unraisablehook` tell of the exception that is set, if one is.
///
/// # Safety
///
/// The thread is attached.
pub(crate) unsafe fn report_exception() {
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        // SAFETY: as above; no object to name.
        unsafe { ffi::PyErr_WriteUnraisable(null_mut()) };
    }
}
