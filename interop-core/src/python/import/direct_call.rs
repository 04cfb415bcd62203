//! Calls methods of immutable types without a lookup.
#![expect(unsafe_code, reason = "calls the C function behind a method")]

use core::mem::transmute;

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

/// The C function of a method of a static type.
///
/// A static type and its bases are immutable. If instances also have no dict, a lookup always finds the same method.
/// The lookup is a seventh of the time of an import from `NumPy`.
#[derive(Clone, Copy)]
pub(crate) struct DirectCall(ffi::PyCFunctionFastWithKeywords);

impl DirectCall {
    /// Returns the method of the object's type, if the type is immutable and the method uses the calling convention of
    /// [`call`](Self::call).
    pub(crate) fn of(object: &Bound<'_, PyAny>, method: &Bound<'_, PyString>) -> Option<Self> {
        let class = object.get_type();
        // SAFETY: the argument is a type.
        let changes = unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
        // SAFETY: the arguments are a type and the number of a slot that holds a function.
        let lookup = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_getattro) };
        let generic: unsafe extern "C" fn(_, _) -> _ = ffi::PyObject_GenericGetAttr;
        // A metaclass may override attribute lookups on the class.
        let plain = class.get_type().is(class.py().get_type::<PyType>());
        if changes || !plain || lookup.addr() != generic as usize {
            return None;
        }
        let dict: isize = class.getattr("__dictoffset__").ok()?.extract().ok()?;
        if dict != 0 {
            return None;
        }
        let method = class.getattr(method).ok().filter(|method| is_method_of(method, &class))?;
        let method = method.call_method1("__get__", (object, class)).ok()?;
        Self::behind(&method, object)
    }

    /// Returns the C function of a bound method of the object.
    fn behind(method: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> Option<Self> {
        // SAFETY: the function accepts any object.
        if unsafe { ffi::PyCFunction_CheckExact(method.as_ptr()) } == 0 {
            return None;
        }
        // SAFETY: the check above found a C function. This applies to the next two calls too.
        let flags = unsafe { ffi::PyCFunction_GetFlags(method.as_ptr()) };
        // SAFETY: as above.
        let of = unsafe { ffi::PyCFunction_GetSelf(method.as_ptr()) };
        // SAFETY: as above.
        let function = unsafe { ffi::PyCFunction_GetFunction(method.as_ptr()) }?;
        if flags != ffi::METH_FASTCALL | ffi::METH_KEYWORDS || of != object.as_ptr() {
            return None;
        }
        // SAFETY: the flags state that the function has this type.
        Some(Self(unsafe { transmute::<ffi::PyCFunction, ffi::PyCFunctionFastWithKeywords>(function) }))
    }

    /// Calls the method with one keyword argument for each of `names`.
    ///
    /// # Errors
    ///
    /// Exceptions that the method raises.
    ///
    /// # Safety
    ///
    /// The type of the object is exactly the one that was passed to [`of`](Self::of).
    #[inline]
    pub(crate) unsafe fn call<'py, const N: usize>(
        self,
        object: &Bound<'py, PyAny>,
        names: &Bound<'py, PyTuple>,
        values: [&Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        let arguments = values.map(Bound::as_ptr);
        // SAFETY: the function is a method of the object's type, as the caller promises. There are no positional
        // arguments, and one live object for each name.
        let value = unsafe { self.0(object.as_ptr(), arguments.as_ptr(), 0, names.as_ptr()) };
        // SAFETY: the call returned a new reference, or null.
        let value = unsafe { Bound::from_owned_ptr_or_opt(py, value) };
        value.ok_or_else(|| failed(py))
    }
}

/// Returns whether an attribute is a method that was defined in C for the class or a base. Only such an attribute is
/// known to be the same function for every object.
fn is_method_of(attribute: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> bool {
    let descriptor = (&raw const ffi::PyMethodDescr_Type).cast_mut();
    if attribute.get_type_ptr() != descriptor {
        return false;
    }
    let owner = attribute.getattr("__objclass__");
    owner.is_ok_and(|owner| class.is_subclass(&owner).unwrap_or(false))
}

/// Returns the current exception, or a `SystemError` if none is set, as the interpreter does.
#[cold]
fn failed(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| PySystemError::new_err("a method failed and raised no exception"))
}
