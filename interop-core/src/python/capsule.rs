//! DLPack capsules: creates them with a destructor and consumes them by renaming.
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
use crate::protocols::dlpack::export::drop_untaken;
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::errors::{of, origin};
use crate::python::interpreter::{report_exception, with_saved_exception};

/// A tensor from a capsule. The name of the capsule determines the variant.
pub(crate) enum CapsuleTensor {
    Versioned(ManagedTensor<Versioned>),
    Legacy(ManagedTensor<Legacy>),
}

/// Creates a capsule that owns the tensor until a consumer takes it.
pub(crate) fn wrap<A: TensorAbi>(py: Python<'_>, tensor: ManagedTensor<A>) -> PyResult<Bound<'_, PyAny>> {
    let tensor = tensor.into_raw();
    // SAFETY: the tensor is not null and the name is static.
    let capsule =
        unsafe { ffi::PyCapsule_New(tensor.cast(), A::CAPSULE_NAME.as_ptr(), Some(destructor::<A>)) };
    // SAFETY: a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    capsule.inspect_err(|_| {
        // SAFETY: no capsule has the pointer, so this code still owns it.
        drop(unsafe { ManagedTensor::from_raw(tensor) });
    })
}

/// Releases the tensor of a capsule that no consumer took. The current exception stays set.
///
/// # Safety
///
/// Python calls this once for a capsule that `wrap::<A>` made, with the thread attached.
unsafe extern "C" fn destructor<A: TensorAbi>(capsule: *mut ffi::PyObject) {
    // SAFETY: the object is a capsule, as the caller promises. The function sets no exception.
    if unsafe { ffi::PyCapsule_IsValid(capsule, A::CAPSULE_NAME.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: the name was compared above.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, A::CAPSULE_NAME.as_ptr()) };
    // SAFETY: consumers rename a capsule that they take. This name is unchanged, so `wrap` set the pointer and no
    // consumer took it.
    let tensor = unsafe { ManagedTensor::from_raw(tensor.cast::<A>()) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(|| drop_untaken(tensor)) };
}

/// Takes the tensor from a capsule and renames the capsule in the same critical section.
///
/// Ownership is taken before validation. Every path, including errors, releases the tensor exactly once.
#[inline(always)]
pub(crate) fn take(object: &Bound<'_, PyAny>) -> Result<CapsuleTensor> {
    // SAFETY: the function accepts any object.
    if unsafe { ffi::PyCapsule_CheckExact(object.as_ptr()) } == 0 {
        return Err(no_capsule(object));
    }
    with_critical_section(object, || {
        let name = name(object);
        if name == Some(Versioned::CAPSULE_NAME) {
            // SAFETY: the capsule has this name, and no other thread changes it within the critical section.
            return unsafe { take_as::<Versioned>(object) }.map(CapsuleTensor::Versioned);
        }
        if name == Some(Legacy::CAPSULE_NAME) {
            // SAFETY: as above.
            return unsafe { take_as::<Legacy>(object) }.map(CapsuleTensor::Legacy);
        }
        Err(no_tensor(name))
    })
}

/// As [`take`], for a capsule that `object` created. Drops the capsule.
///
/// The destructor must not raise an exception. If it does, the exception is reported here, so that it does not surface
/// in an unrelated call.
#[inline(always)]
pub(crate) fn take_from(object: &Bound<'_, PyAny>, capsule: Bound<'_, PyAny>) -> Result<CapsuleTensor> {
    let taken = take(&capsule);
    drop(capsule);
    // SAFETY: the thread is attached, because it holds a `Bound`.
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

/// Takes the tensor from a capsule that has the unused name of this form.
///
/// # Errors
///
/// None is known, because every capsule holds a pointer.
///
/// # Safety
///
/// `capsule` is a capsule of that name, and no other thread changes its name meanwhile.
unsafe fn take_as<A: TensorAbi>(capsule: &Bound<'_, PyAny>) -> Result<ManagedTensor<A>> {
    // SAFETY: the object is a capsule.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), A::CAPSULE_NAME.as_ptr()) };
    if tensor.is_null() {
        drop(PyErr::take(capsule.py()));
        return Err(no_tensor(None));
    }
    // SAFETY: the object is a capsule, and the name is static.
    unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED_CAPSULE_NAME.as_ptr()) };
    // SAFETY: the protocol states that a capsule of this name holds such a struct, and that whoever renames it owns the
    // struct.
    Ok(unsafe { ManagedTensor::from_raw(tensor.cast()) })
}

/// The name of a capsule, or `None` for a null name.
fn name<'a>(capsule: &'a Bound<'_, PyAny>) -> Option<&'a CStr> {
    // SAFETY: the object is a capsule.
    let name: *const c_char = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    // SAFETY: capsule names are C strings, which outlive their capsules.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}
