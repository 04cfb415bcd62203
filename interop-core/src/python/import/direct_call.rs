//! Methods of types that cannot change, called past the lookup.
#![expect(unsafe_code, reason = "calls the C function behind a method")]

use core::mem::transmute;

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

/// A method of a static type, as the C function behind it.
///
/// A static type is immutable and so are its bases, and where an instance has no dict, nothing else decides what its
/// methods are: the lookup, which is a seventh of the time of an import from `NumPy`, finds the same for ever.
#[derive(Clone, Copy)]
pub(crate) struct DirectCall(ffi::PyCFunctionFastWithKeywords);

impl DirectCall {
    /// The method of the object's type, if it is such a type and the method takes arguments as [`call`](Self::call)
    /// hands them over.
    pub(crate) fn of(object: &Bound<'_, PyAny>, method: &Bound<'_, PyString>) -> Option<Self> {
        let class = object.get_type();
        // SAFETY: a type.
        let changes = unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
        // SAFETY: a type, and a number of a slot that holds a function.
        let lookup = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_getattro) };
        let generic: unsafe extern "C" fn(_, _) -> _ = ffi::PyObject_GenericGetAttr;
        // A metaclass may answer for the class as it likes.
        let plain = class.get_type().is(class.py().get_type::<PyType>());
        let dict: isize = class.getattr("__dictoffset__").ok()?.extract().ok()?;
        if changes || !plain || dict != 0 || lookup.addr() != generic as usize {
            return None;
        }
        let method = class.getattr(method).ok().filter(|method| is_method_of(method, &class))?;
        let method = method.call_method1("__get__", (object, class)).ok()?;
        Self::behind(&method, object)
    }

    /// The function behind a method of the object.
    fn behind(method: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> Option<Self> {
        // SAFETY: any object may be asked for its type.
        if unsafe { ffi::PyCFunction_CheckExact(method.as_ptr()) } == 0 {
            return None;
        }
        // SAFETY: a function written in C, as are the next two.
        let flags = unsafe { ffi::PyCFunction_GetFlags(method.as_ptr()) };
        // SAFETY: as above.
        let of = unsafe { ffi::PyCFunction_GetSelf(method.as_ptr()) };
        // SAFETY: as above.
        let function = unsafe { ffi::PyCFunction_GetFunction(method.as_ptr()) }?;
        if flags != ffi::METH_FASTCALL | ffi::METH_KEYWORDS || of != object.as_ptr() {
            return None;
        }
        // SAFETY: what the flags say of the type of the function.
        Some(Self(unsafe { transmute::<ffi::PyCFunction, ffi::PyCFunctionFastWithKeywords>(function) }))
    }

    /// Calls the method with one keyword argument for each of `names`.
    ///
    /// # Errors
    ///
    /// What the method raises.
    ///
    /// # Safety
    ///
    /// The object is of the very type that the method was [taken from](Self::of).
    #[inline]
    pub(crate) unsafe fn call<'py, const N: usize>(
        self,
        object: &Bound<'py, PyAny>,
        names: &Bound<'py, PyTuple>,
        values: [&Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        let arguments = values.map(Bound::as_ptr);
        // SAFETY: an object of the type that the function is a method of, as the caller promises; no positional arguments,
        // and live objects, one for each name.
        let value = unsafe { self.0(object.as_ptr(), arguments.as_ptr(), 0, names.as_ptr()) };
        // SAFETY: a new reference, or null.
        let value = unsafe { Bound::from_owned_ptr_or_opt(py, value) };
        value.ok_or_else(|| failed(py))
    }
}

/// Whether an attribute is a method that was declared in C for the class or a base of it: the one kind of attribute that is
/// known to be the same function for every object.
fn is_method_of(attribute: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> bool {
    let descriptor = (&raw const ffi::PyMethodDescr_Type).cast_mut();
    if attribute.get_type_ptr() != descriptor {
        return false;
    }
    let owner = attribute.getattr("__objclass__");
    owner.is_ok_and(|owner| class.is_subclass(&owner).unwrap_or(false))
}

/// The exception that a function has set; one that says so if it has set none, which the interpreter does elsewhere.
#[cold]
fn failed(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| PySystemError::new_err("a method failed and raised no exception"))
}
