//! Which classes are arrays, and the C functions that are their methods.
#![expect(unsafe_code, reason = "methods are C functions that Python calls")]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::{PyClass, ffi};

use crate::array::info::ArrayInfo;
use crate::derive::cuda_array::CudaArray;
use crate::python::ffi_boundary::catch_panics;
use crate::python::py_owner::release_deferred_refs;

/// `#[pyclass(frozen)]`, as `PyO3` says it in types.
#[doc(hidden)]
pub trait IsFrozen: Sized {
    /// The struct of an object, on any thread: a borrow would panic on all but one if the class is `unsendable`, and the
    /// struct is `Sync` whatever its class says.
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T;
}

impl IsFrozen for True {
    #[inline]
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T {
        object.get()
    }
}

/// The struct of an array.
#[inline]
pub(crate) fn struct_of<'a, T: ArrayClass>(array: &'a Bound<'_, T>) -> &'a T {
    T::Frozen::get(array)
}

/// What `#[cuda_array(pyclass)]` makes of a struct, be it a class or not: what is missing for one is a single message then,
/// that of [`ArrayClass`].
#[doc(hidden)]
pub trait ArrayMethods: CudaArray + Send + Sync {}

/// A `#[pyclass]` whose instances are arrays; `#[cuda_array(pyclass)]` makes one.
///
/// The class is frozen: exports keep the Python object and with it the struct, which nobody may change while consumers
/// use its memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no Python class of arrays",
    label = "not a frozen class with `pyclass` in `#[cuda_array(...)]`",
    note = "write `#[pyclass(frozen)]`, `#[derive(CudaArray)]` and `#[cuda_array(pyclass)]` on the struct",
    note = "`frozen`: its memory is shared with Python, so nothing may replace it"
)]
pub trait ArrayClass: CudaArray + ArrayMethods + PyClass<Frozen: IsFrozen> + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: ArrayMethods + PyClass<Frozen: IsFrozen>> ArrayClass for T {}

/// Runs the body of a method: an error or a panic becomes a Python exception, and null.
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
        // SAFETY: a live object, to which Python holds a reference during the call.
        let this = unsafe { Borrowed::from_ptr(py, this) };
        // SAFETY: of this class, as the caller promises.
        let this = unsafe { this.cast_unchecked::<T>() };
        run(&this)
    };
    // SAFETY: the thread is attached, as the caller promises.
    unsafe { catch_panics(run) }.map_or(core::ptr::null_mut(), Py::into_ptr)
}

/// An iterator over the items of `__getitem__`, by index up to an `IndexError`. For an array without axes that error would end the
/// loop as if the array were empty, so it is refused here.
pub(crate) fn items<T: ArrayClass>(array: &Bound<'_, T>, info: &ArrayInfo) -> PyResult<Py<PyAny>> {
    if info.ndim() == 0 {
        return Err(PyTypeError::new_err("iteration over an array without axes"));
    }
    // SAFETY: a live object with a `__getitem__`.
    let rows = unsafe { ffi::PySeqIter_New(array.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    Ok(unsafe { Bound::from_owned_ptr_or_err(array.py(), rows) }?.unbind())
}
