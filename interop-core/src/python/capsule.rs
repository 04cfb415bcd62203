//! Capsules around a value, and the capsule with the record of accesses that the modules of an interpreter share.
#![expect(unsafe_code, reason = "capsules hold raw pointers")]

use core::ffi::CStr;
use core::ptr::NonNull;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict};

use crate::driver::reach::contain_panic;
use crate::order::record::{OWN, SharedTable, record_in};
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

/// The beginning of the name of every version's table in the interpreter's dict.
const TABLES: &str = "interop_core.access_table";

/// The name of the table, and of the capsule around it. A change of [`SharedTable`] needs a new name.
const TABLE: &CStr = c"interop_core.access_table_v5";

/// Makes this module record accesses to memory in the table that all modules of the interpreter share.
///
/// A module calls this before its first import, its first result and the first object of a class. Until then no other module has its
/// memory.
///
/// # Errors
///
/// `ImportError` if a module has a table of another version: neither would know what the other one reads and writes. Otherwise if
/// Python cannot allocate memory.
pub(crate) fn share_record(py: Python<'_>) -> PyResult<()> {
    static SHARED: PyOnceLock<()> = PyOnceLock::new();
    SHARED.get_or_try_init(py, || first_of_all(py).map(record_in)).copied()
}

/// Returns the table of the first module that called this.
fn first_of_all(py: Python<'_>) -> PyResult<&'static SharedTable> {
    // SAFETY: the table is a static, and the capsule has no destructor.
    let own = unsafe { PyCapsule::new_with_pointer(py, NonNull::from(&OWN).cast(), TABLE) }?;
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: `interpreter` is the interpreter of this thread.
    let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter) };
    // SAFETY: the call returned a borrowed reference, or null if there is no dict.
    let Some(dict) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) }) else { return Ok(&OWN) };
    let dict = dict.cast_into::<PyDict>()?;
    refuse_other_versions(&dict)?;
    // `setdefault` is atomic, also in free-threaded builds.
    let first = dict.call_method1("setdefault", (TABLE.to_string_lossy(), own))?;
    // SAFETY: the object is alive.
    let table = unsafe { capsule_pointer(first.as_ptr(), TABLE) };
    // SAFETY: a module of this crate stored such a table under this name. Its memory is never unloaded, because no
    // interpreter unloads an extension module.
    Ok(table.map_or(&OWN, |table| unsafe { table.cast::<SharedTable>().as_ref() }))
}

fn refuse_other_versions(dict: &Bound<'_, PyDict>) -> PyResult<()> {
    for key in dict.keys() {
        let Ok(name) = key.extract::<String>() else { continue };
        if name.starts_with(TABLES) && name.as_bytes() != TABLE.to_bytes() {
            let message = format!(
                "found an extension module with another version of interop-core, whose record of reads and writes is {name}; \
                 allowed: modules with {}, as in interop-core {}: build all of them with one version",
                TABLE.to_string_lossy(),
                env!("CARGO_PKG_VERSION"),
            );
            return Err(PyImportError::new_err(message));
        }
    }
    Ok(())
}

/// A module that only returns arrays shares the record, too. Run as a test.
///
/// ```
/// use interop_core::python::NumPy;
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::ffi;
/// use pyo3::prelude::*;
/// use pyo3::types::PyDict;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: HostVec<f64>, len: usize }
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     // SAFETY: the thread is attached, and the dict belongs to its interpreter.
///     let shared = unsafe { Bound::from_borrowed_ptr(py, ffi::PyInterpreterState_GetDict(ffi::PyInterpreterState_Get())) };
///     let shared = shared.cast_into::<PyDict>()?;
///     let name = "interop_core.access_table_v5";
///     assert!(!shared.contains(name)?);
///     // Also if there is no NumPy.
///     let _ = NumPy(Samples { values: HostVec::zeroed(3), len: 3 }).into_pyobject(py);
///     assert!(shared.contains(name)?);
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct ModuleThatReturns;
