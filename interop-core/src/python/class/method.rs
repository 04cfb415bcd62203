//! C functions as methods of Python classes.
#![expect(unsafe_code, reason = "makes descriptors of definitions")]

use core::ffi::CStr;

use pyo3::ffi;
use pyo3::prelude::*;

/// How Python calls a method: the flag says which of its types the function has, so the two are named together.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    /// Without arguments.
    Bare(ffi::PyCFunction),
    /// With one argument.
    One(ffi::PyCFunction),
    /// With a tuple and a dict.
    Keywords(ffi::PyCFunctionWithKeywords),
    /// With the arguments one after another, and the names of the last.
    Fast(ffi::PyCFunctionFastWithKeywords),
}

/// A method: its name, its function, and its documentation, whose first lines are the signature for `inspect`, in the form
/// that CPython reads.
pub(crate) type Method = (&'static CStr, Call, &'static CStr);

/// A method of the class; the definition is kept for as long as the program runs, as the class may be.
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
    // SAFETY: a class, and a definition that outlives it.
    let descriptor = unsafe { ffi::PyDescr_NewMethod(class, definition) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, descriptor) }
}
