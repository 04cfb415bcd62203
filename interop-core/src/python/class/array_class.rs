//! The trait of array classes, and the body of the C functions that are their methods.
#![expect(unsafe_code, reason = "methods are C functions that Python calls")]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::{PyClass, ffi};

use crate::array::info::ArrayInfo;
use crate::derive::cuda_array::CudaArray;
use crate::python::ffi_boundary::catch_panics;
use crate::python::py_owner::release_deferred_refs;

/// `#[pyclass(frozen)]` as a type, as `PyO3` expresses it.
#[doc(hidden)]
pub trait IsFrozen: Sized {
    /// Returns the struct of an object, on any thread. A borrow would panic on other threads if the class is
    /// `unsendable`, but the struct is `Sync`.
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T;
}

impl IsFrozen for True {
    #[inline]
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T {
        object.get()
    }
}

/// Returns the struct of an array object.
#[inline]
pub(crate) fn struct_of<'a, T: ArrayClass>(array: &'a Bound<'_, T>) -> &'a T {
    T::Frozen::get(array)
}

/// Implemented by `#[cuda_array(pyclass)]`, whether or not the struct is a class. An unmet bound then gives one error
/// message, that of [`ArrayClass`].
#[doc(hidden)]
pub trait ArrayMethods: CudaArray + Send + Sync {}

/// A `#[pyclass]` whose instances are arrays. `#[cuda_array(pyclass)]` implements it.
///
/// The class is frozen: exports keep the Python object and its struct, which must not change while consumers use its
/// memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no Python class of arrays",
    label = "not a frozen class with `pyclass` in `#[cuda_array(...)]`",
    note = "write `#[pyclass(frozen)]`, `#[derive(CudaArray)]` and `#[cuda_array(pyclass)]` on the struct",
    note = "`frozen`: its memory is shared with Python, so nothing may replace it"
)]
pub trait ArrayClass: CudaArray + ArrayMethods + PyClass<Frozen: IsFrozen> + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: ArrayMethods + PyClass<Frozen: IsFrozen>> ArrayClass for T {}

/// Runs the body of a method. On an error or a panic, sets a Python exception and returns null.
///
/// # Safety
///
/// `this` is an instance of `T`, and the thread is attached.
pub(crate) unsafe fn body<T: ArrayClass>(
    this: *mut ffi::PyObject,
    run: impl FnOnce(&Bound<'_, T>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    let run = |py: Python<'_>| {
        release_deferred_refs(py);
        // SAFETY: the object is alive; Python holds a reference to it during the call.
        let this = unsafe { Borrowed::from_ptr(py, this) };
        // SAFETY: the object is of this class, as the caller promises.
        let this = unsafe { this.cast_unchecked::<T>() };
        run(&this)
    };
    // SAFETY: the thread is attached, as the caller promises.
    unsafe { catch_panics(run) }.map_or(core::ptr::null_mut(), Py::into_ptr)
}

/// Returns an iterator that calls `__getitem__` with increasing indices until an `IndexError`.
///
/// An array without axes is rejected here, because its `IndexError` would make it look empty.
pub(crate) fn items<T: ArrayClass>(array: &Bound<'_, T>, info: &ArrayInfo) -> PyResult<Py<PyAny>> {
    if info.ndim() == 0 {
        return Err(PyTypeError::new_err("iteration over an array without axes"));
    }
    // SAFETY: the object is alive and has a `__getitem__`.
    let rows = unsafe { ffi::PySeqIter_New(array.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    Ok(unsafe { Bound::from_owned_ptr_or_err(array.py(), rows) }?.unbind())
}
