//! Capsules: made with a destructor, taken by renaming.
#![expect(unsafe_code, reason = "capsules hold raw pointers")]
#![expect(
    clippy::inline_always,
    reason = "one code from the object to the tensor: results stay in registers, a 30th of an import"
)]

use core::ffi::{CStr, c_char};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;

use crate::error::{Error, ErrorKind, Result};
use crate::protocols::dlpack::abi::{Legacy, TensorAbi, Versioned};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::errors::{of, origin};
use crate::python::exception_state::{report_exception, with_saved_exception};

/// A tensor out of a capsule, in the form that its name said.
pub(crate) enum CapsuleTensor {
    Versioned(ManagedTensor<Versioned>),
    Legacy(ManagedTensor<Legacy>),
}

/// A capsule that owns the tensor until a consumer takes it.
pub(crate) fn wrap<A: TensorAbi>(py: Python<'_>, tensor: ManagedTensor<A>) -> PyResult<Bound<'_, PyAny>> {
    let tensor = tensor.into_raw();
    // SAFETY: the tensor is not null and the name is static.
    let capsule =
        unsafe { ffi::PyCapsule_New(tensor.cast(), A::CAPSULE_NAME.as_ptr(), Some(destructor::<A>)) };
    // SAFETY: a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    capsule.inspect_err(|_| {
        // SAFETY: no capsule has the pointer, so it is still ours.
        drop(unsafe { ManagedTensor::from_raw(tensor) });
    })
}

/// Releases the tensor of a capsule that nobody took. An exception that is on its way stays as it is.
///
/// # Safety
///
/// Python calls this once for a capsule that `wrap::<A>` made, with the thread attached.
unsafe extern "C" fn destructor<A: TensorAbi>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule, as the caller promises; no exception is set by asking.
    if unsafe { ffi::PyCapsule_IsValid(capsule, A::CAPSULE_NAME.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: the name was compared.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, A::CAPSULE_NAME.as_ptr()) };
    // SAFETY: the name is a fresh one, so the pointer is the one of `wrap` and was not taken.
    let tensor = unsafe { ManagedTensor::from_raw(tensor.cast::<A>()) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(|| drop(tensor)) };
}

/// Takes the tensor out of a capsule: it is renamed in the same step in which the pointer is read, and only then looked
/// at, so that every way on releases it once.
#[inline(always)]
pub(crate) fn take(object: &Bound<'_, PyAny>) -> Result<CapsuleTensor> {
    // SAFETY: any object may be asked for its type.
    if unsafe { ffi::PyCapsule_CheckExact(object.as_ptr()) } == 0 {
        return Err(no_capsule(object));
    }
    with_critical_section(object, || {
        let name = name(object);
        if name == Some(Versioned::CAPSULE_NAME) {
            // SAFETY: a capsule of this name, which no other thread changes meanwhile.
            return unsafe { take_as::<Versioned>(object) }.map(CapsuleTensor::Versioned);
        }
        if name == Some(Legacy::CAPSULE_NAME) {
            // SAFETY: as above.
            return unsafe { take_as::<Legacy>(object) }.map(CapsuleTensor::Legacy);
        }
        Err(no_tensor(name))
    })
}

/// As [`take`], of a capsule that `object` handed out, which is let go of. Its destructor is to raise nothing; what it raises
/// all the same would surface in somebody else's call.
#[inline(always)]
pub(crate) fn take_from(object: &Bound<'_, PyAny>, capsule: Bound<'_, PyAny>) -> Result<CapsuleTensor> {
    let taken = take(&capsule);
    drop(capsule);
    // SAFETY: the thread is attached, as it has a capsule.
    unsafe { report_exception() };
    taken.map_err(|error| of(object, error))
}

#[cold]
fn no_capsule(object: &Bound<'_, PyAny>) -> Error {
    let allowed = "a capsule named \"dltensor\" or \"dltensor_versioned\"";
    Error::new(ErrorKind::Type, "capsule", origin(object), allowed)
}

#[cold]
fn no_tensor(name: Option<&CStr>) -> Error {
    let name = name.map_or_else(|| "NULL".into(), |name| format!("{name:?}"));
    let found = format!("a capsule named {name}");
    let allowed = "\"dltensor\" or \"dltensor_versioned\"; a capsule can be taken once";
    Error::new(ErrorKind::Capsule, "capsule", found, allowed)
}

/// The tensor in a capsule that has the fresh name of this form.
///
/// # Errors
///
/// None that is known: a capsule holds a pointer.
///
/// # Safety
///
/// `capsule` is such a capsule, and no other thread changes its name meanwhile.
unsafe fn take_as<A: TensorAbi>(capsule: &Bound<'_, PyAny>) -> Result<ManagedTensor<A>> {
    // SAFETY: a capsule.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), A::CAPSULE_NAME.as_ptr()) };
    if tensor.is_null() {
        drop(PyErr::take(capsule.py()));
        return Err(no_tensor(None));
    }
    // SAFETY: a capsule, and a static name.
    unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED_CAPSULE_NAME.as_ptr()) };
    // SAFETY: the protocol says that a capsule of this name holds such a struct, and that it is ours once renamed.
    Ok(unsafe { ManagedTensor::from_raw(tensor.cast()) })
}

/// The name of a capsule; `None` for null.
fn name<'a>(capsule: &'a Bound<'_, PyAny>) -> Option<&'a CStr> {
    // SAFETY: a capsule.
    let name: *const c_char = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    // SAFETY: capsule names are C strings, which outlive their capsules.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}
