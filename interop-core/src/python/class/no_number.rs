//! `float(x)` and `int(x)` of array classes, which Python would read from the bytes of the buffer.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Lets `float(x)` and `int(x)` raise `TypeError`, unless the class has a method that they call.
///
/// Without such a method, Python asks for the buffer of the object and parses its bytes as digits: the bytes `"53"` would be
/// the number 53. The methods are added to the finished class, because a second method of the same name among the author's
/// would not compile.
pub(crate) fn refuse_numbers(class: &Bound<'_, PyType>) -> PyResult<()> {
    for (method, callers) in
        [("__float__", &["__float__", "__index__"][..]), ("__int__", &["__int__", "__index__", "__trunc__"])]
    {
        let mut has = false;
        for name in callers {
            has |= class.hasattr(name)?;
        }
        if !has {
            class.setattr(method, wrap_pyfunction!(no_number, class.py())?)?;
        }
    }
    Ok(())
}

/// Raises `TypeError`. Python passes no `self` to it, because a function of C is no method.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
fn no_number(_arguments: &Bound<'_, PyAny>) -> PyResult<()> {
    Err(PyTypeError::new_err("an array is not a number; convert it by `float(numpy.asarray(x))`"))
}
