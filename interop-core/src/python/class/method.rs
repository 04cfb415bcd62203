//! Adds C functions as methods to Python classes.
#![expect(unsafe_code, reason = "makes descriptors of definitions")]

use core::ffi::CStr;

use pyo3::ffi;
use pyo3::prelude::*;

/// How Python calls a method. The flag determines the type of the function, so each variant holds the matching type.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    /// Without arguments.
    Bare(ffi::PyCFunction),
    /// With one argument.
    One(ffi::PyCFunction),
    /// With a tuple and a dict.
    Keywords(ffi::PyCFunctionWithKeywords),
    /// With an array of arguments, and the names of the last ones.
    Fast(ffi::PyCFunctionFastWithKeywords),
}

/// A method: its name, function and documentation. The first lines of the documentation are the signature in the form
/// that `inspect` reads.
pub(crate) type Method = (&'static CStr, Call, &'static CStr);

/// Creates a method descriptor of the class. The definition is leaked, because the class may live until the program
/// ends.
#[expect(non_snake_case, reason = "the names of the members of a union")]
pub(crate) fn method(
    py: Python<'_>,
    class: *mut ffi::PyTypeObject,
    (name, call, doc): Method,
) -> PyResult<Bound<'_, PyAny>> {
    let (ml_meth, ml_flags) = match call {
        Call::Bare(PyCFunction) => (ffi::PyMethodDefPointer { PyCFunction }, ffi::METH_NOARGS),
        Call::One(PyCFunction) => (ffi::PyMethodDefPointer { PyCFunction }, ffi::METH_O),
        Call::Keywords(PyCFunctionWithKeywords) => {
            (ffi::PyMethodDefPointer { PyCFunctionWithKeywords }, ffi::METH_VARARGS | ffi::METH_KEYWORDS)
        }
        Call::Fast(PyCFunctionFastWithKeywords) => {
            (ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords }, ffi::METH_FASTCALL | ffi::METH_KEYWORDS)
        }
    };
    let definition = ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth, ml_flags, ml_doc: doc.as_ptr() };
    let definition = Box::leak(Box::new(definition));
    // SAFETY: `class` is a class, and the definition outlives it.
    let descriptor = unsafe { ffi::PyDescr_NewMethod(class, definition) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, descriptor) }
}
