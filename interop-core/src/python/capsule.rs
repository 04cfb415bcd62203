//! Capsules around a value, and the capsule with the record of borrows that the modules of an interpreter share.
#![expect(unsafe_code, reason = "capsules hold raw pointers")]

use core::ffi::CStr;
use core::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCapsule;

use crate::driver::release::reach::contain_panic;
use crate::process::borrow_registry::{OWN, SharedTable, record_in};
use crate::python::interpreter::{capsule_pointer, with_saved_exception};

/// Moves a value into a capsule, which drops it with the thread attached. The current exception stays set meanwhile.
pub(crate) fn in_capsule<T: Send + 'static>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyAny>> {
    let place = NonNull::from(Box::leak(Box::new(value)));
    let destructor = Some(drop_value::<T> as ffi::PyCapsule_Destructor);
    // SAFETY: the destructor gets a capsule with such a box.
    let capsule = unsafe { PyCapsule::new_with_pointer_and_destructor(py, place.cast(), VALUE, destructor) };
    capsule.map(Bound::into_any).inspect_err(|_| {
        // SAFETY: the box was created above, and no capsule has it.
        drop(unsafe { Box::from_raw(place.as_ptr()) });
    })
}

/// The name of the capsule around a value.
const VALUE: &CStr = c"interop_core.value";

/// The destructor of [`in_capsule`]. If other code has renamed the capsule, the value is leaked.
///
/// # Safety
///
/// Python calls this once for a capsule that `in_capsule::<T>` created, with the thread attached.
unsafe extern "C" fn drop_value<T>(capsule: *mut ffi::PyObject) {
    // SAFETY: the object is alive, as the caller promises.
    let Some(place) = (unsafe { capsule_pointer(capsule, VALUE) }) else { return };
    // SAFETY: this is the box of `in_capsule`, and it is freed once.
    let value = unsafe { Box::from_raw(place.cast::<T>().as_ptr()) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(|| contain_panic(|| drop(value))) };
}

/// The name of the table in the interpreter's dict, and of the capsule around it. A change of the layout needs a new
/// name.
const BORROWS: &CStr = c"interop_core.access_table_v3";

/// Makes this module record reads and writes of host memory in the table that all modules of the interpreter share.
///
/// A module calls this before its first export and before its first import. Until then no other module has its memory.
///
/// # Errors
///
/// If Python cannot allocate memory.
pub(crate) fn share_borrow_table(py: Python<'_>) -> PyResult<()> {
    static SHARED: PyOnceLock<()> = PyOnceLock::new();
    SHARED.get_or_try_init(py, || first_of_all(py).map(record_in)).copied()
}

/// Returns the table of the first module that called this.
fn first_of_all(py: Python<'_>) -> PyResult<&'static SharedTable> {
    // SAFETY: the table is a static, and the capsule has no destructor.
    let own = unsafe { PyCapsule::new_with_pointer(py, NonNull::from(&OWN).cast(), BORROWS) }?;
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: `interpreter` is the interpreter of this thread.
    let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter) };
    // SAFETY: the call returned a borrowed reference, or null if there is no dict.
    let Some(dict) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) }) else { return Ok(&OWN) };
    // `setdefault` is atomic, also in free-threaded builds.
    let first = dict.call_method1("setdefault", (BORROWS.to_string_lossy(), own))?;
    // SAFETY: the object is alive.
    let table = unsafe { capsule_pointer(first.as_ptr(), BORROWS) };
    // SAFETY: a module of this crate stored such a table under this name. Its memory is never unloaded, because no
    // interpreter unloads an extension module.
    Ok(table.map_or(&OWN, |table| unsafe { table.cast::<SharedTable>().as_ref() }))
}
