//! One table of host borrows for all extension modules of an interpreter that were built with this crate.
#![expect(unsafe_code, reason = "finds a table that another module left")]

use core::ffi::{CStr, c_void};
use core::ptr::from_ref;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::process::borrow_registry::{OWN, SharedTable, record_in};
use crate::python::interpreter::{capsule_pointer, new_capsule};

/// The name of the table in the interpreter's dict, and of the capsule around it. A change of the layout needs a new
/// name.
const NAME: &CStr = c"interop_core.access_table_v3";

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
    let own = from_ref(&OWN).cast_mut().cast::<c_void>();
    let own = new_capsule(py, own, NAME, None)?;
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: `interpreter` is the interpreter of this thread.
    let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter) };
    // SAFETY: the call returned a borrowed reference, or null if there is no dict.
    let Some(dict) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) }) else { return Ok(&OWN) };
    // `setdefault` is atomic, also in free-threaded builds.
    let first = dict.call_method1("setdefault", (NAME.to_string_lossy(), own))?;
    // SAFETY: the object is alive.
    let table = unsafe { capsule_pointer(first.as_ptr(), NAME) };
    // SAFETY: a module of this crate stored such a table under this name. Its memory is never unloaded, because no
    // interpreter unloads an extension module.
    Ok(table.map_or(&OWN, |table| unsafe { table.cast::<SharedTable>().as_ref() }))
}
