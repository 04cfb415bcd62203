//! What the extension modules of an interpreter have in common that were built with this crate.
#![expect(unsafe_code, reason = "finds a table that another module left")]

use core::ffi::{CStr, c_void};
use core::ptr::{NonNull, from_ref};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::memory::borrow_registry::{OWN, SharedTable, record_in};

/// The name of the table in the interpreter's dict, and of the capsule around it. Another form of it gets another name.
const NAME: &CStr = c"interop_core.access_table_v1";

/// Has the modules of the interpreter write down in one table who reads and writes host memory. Before a module hands out its
/// first array and before it takes one: until then no other has memory of its.
///
/// # Errors
///
/// Memory that Python has none of.
pub(crate) fn share_borrow_table(py: Python<'_>) -> PyResult<()> {
    static SHARED: PyOnceLock<()> = PyOnceLock::new();
    SHARED.get_or_try_init(py, || first_of_all(py).map(record_in)).copied()
}

/// The table of the first module that came here.
fn first_of_all(py: Python<'_>) -> PyResult<&'static SharedTable> {
    let own = from_ref(&OWN).cast_mut().cast::<c_void>();
    // SAFETY: not null, and a name that is never freed, as is the table.
    let own = unsafe { ffi::PyCapsule_New(own, NAME.as_ptr(), None) };
    // SAFETY: a new reference, or null with an exception set.
    let own = unsafe { Bound::from_owned_ptr_or_err(py, own) }?;
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter of this thread.
    let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter) };
    // SAFETY: a borrowed reference, or null for none.
    let Some(dict) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) }) else { return Ok(&OWN) };
    // In one step, also without the interpreter's lock.
    let first = dict.call_method1("setdefault", (NAME.to_string_lossy(), own))?;
    // SAFETY: any object may be asked about.
    if unsafe { ffi::PyCapsule_IsValid(first.as_ptr(), NAME.as_ptr()) } == 0 {
        return Ok(&OWN);
    }
    // SAFETY: valid under this name.
    let table = unsafe { ffi::PyCapsule_GetPointer(first.as_ptr(), NAME.as_ptr()) };
    // SAFETY: under this name a module of this crate's has left such a table, in memory that is never unloaded: no interpreter
    // unloads an extension module.
    Ok(NonNull::new(table).map_or(&OWN, |table| unsafe { table.cast::<SharedTable>().as_ref() }))
}
