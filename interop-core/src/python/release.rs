//! Python objects that own exported memory, released on whichever thread the consumer lets go.
#![expect(unsafe_code, reason = "asks the interpreter for the state of the thread, past PyO3")]

use core::ffi::{c_char, c_int, c_void};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

/// A reference to a Python object that any thread may drop.
///
/// A deleter may run without the interpreter's lock, even while another thread holds it and waits for this one. So the
/// drop never waits: where the thread is not attached the reference is parked, and released at the next call into this
/// room. What is parked when the interpreter ends is leaked.
pub(super) struct PyOwner(ManuallyDrop<Py<PyAny>>);

static PARKED: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());
static WAITING: AtomicUsize = AtomicUsize::new(0);

impl PyOwner {
    pub(super) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }
}

impl Drop for PyOwner {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, here.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        if is_attached() {
            // SAFETY: the thread is attached, and the reference is ours.
            unsafe { ffi::Py_DECREF(object.into_ptr()) };
            return;
        }
        let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
        parked.push(object);
        WAITING.store(parked.len(), Ordering::Release);
    }
}

/// The number of releases that wait for a thread that is attached to the interpreter.
#[must_use]
pub fn pending_releases() -> usize {
    WAITING.load(Ordering::Acquire)
}

/// Releases what other threads could not. Every import and every method of an array class does so.
pub fn drain(py: Python<'_>) {
    if pending_releases() == 0 {
        return;
    }
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    let objects = core::mem::take(&mut *parked);
    WAITING.store(0, Ordering::Release);
    // Dropping an object may run any code, also code that comes back here.
    drop(parked);
    for object in objects {
        object.drop_ref(py);
    }
}

/// Whether this thread may use Python objects.
///
/// The stable ABI has no function that says so. `PyGILState_Check` does, and every `CPython` exports it; where it cannot
/// be found the answer is no, and releases are parked.
fn is_attached() -> bool {
    type Check = unsafe extern "C" fn() -> c_int;
    static CHECK: OnceLock<Option<Check>> = OnceLock::new();
    let check = CHECK.get_or_init(|| {
        let symbol = lookup(c"PyGILState_Check".as_ptr());
        // SAFETY: the function has this type in every version of CPython; null becomes `None`.
        unsafe { core::mem::transmute::<*mut c_void, Option<Check>>(symbol) }
    });
    // SAFETY: it may be called on any thread, before, during and after the life of the interpreter.
    check.is_some_and(|check| unsafe { check() } == 1)
}

/// The address of a symbol of the running program.
#[cfg(unix)]
fn lookup(name: *const c_char) -> *mut c_void {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    // `RTLD_DEFAULT`: all libraries of the program, in the order in which they were loaded.
    let everywhere = if cfg!(target_vendor = "apple") { usize::MAX - 1 } else { 0 };
    // SAFETY: a constant of the platform and a C string.
    unsafe { dlsym(core::ptr::without_provenance_mut(everywhere), name) }
}

#[cfg(not(unix))]
fn lookup(_: *const c_char) -> *mut c_void {
    core::ptr::null_mut()
}
