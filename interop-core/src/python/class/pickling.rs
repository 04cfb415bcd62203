//! Pickling of arrays, and copies by the module `copy`.
#![expect(unsafe_code, reason = "a method is a C function that Python calls")]

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::class::array_class::{ArrayClass, body};
use crate::python::class::numpy::on_host;

/// `__reduce_ex__`, which `pickle` and `copy` call.
///
/// # Safety
///
/// Called by Python as a method of `T` with one argument.
pub(crate) unsafe extern "C" fn reduce<T: ArrayClass>(
    this: *mut ffi::PyObject,
    protocol: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let (class, object) = (array.as_any().get_type(), array.py().get_type::<PyAny>());
        // SAFETY: the caller holds a reference to the argument.
        let protocol = unsafe { Borrowed::from_ptr(array.py(), protocol) };
        if says_how_it_is_pickled(&class, &object)? {
            return Ok(object.call_method1("__reduce_ex__", (array, protocol))?.unbind());
        }
        if is_just_an_array(array)? {
            // A pickle contains the elements as a `NumPy` array.
            return Ok(on_host(array)?.call_method1("__reduce_ex__", (protocol,))?.unbind());
        }
        let class = class.qualname()?;
        let text =
            format!("cannot pickle '{class}', which shares memory; pickle a copy, such as numpy.array(x)");
        Err(PyTypeError::new_err(text))
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// Returns whether an object is only an array: of exactly the class `T`, which does not define how it is pickled.
pub(crate) fn is_just_an_array<T: ArrayClass>(array: &Bound<'_, T>) -> PyResult<bool> {
    let py = array.py();
    let class = array.as_any().get_type();
    Ok(class.is(py.get_type::<T>()) && !says_how_it_is_pickled(&class, &py.get_type::<PyAny>())?)
}

/// Returns whether a class or a base defines how its objects are pickled: by a method that `object` would call, or by
/// another `__reduce__`.
fn says_how_it_is_pickled(class: &Bound<'_, PyType>, object: &Bound<'_, PyType>) -> PyResult<bool> {
    for name in ["__getnewargs__", "__getnewargs_ex__", "__setstate__"] {
        if class.hasattr(name)? {
            return Ok(true);
        }
    }
    Ok(!class.getattr("__reduce__")?.is(object.getattr("__reduce__")?))
}
