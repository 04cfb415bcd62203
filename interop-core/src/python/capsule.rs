//! Capsules: made with a destructor, taken by renaming.
#![expect(unsafe_code, reason = "capsules hold raw pointers")]
#![expect(
    clippy::inline_always,
    reason = "one code from the object to the tensor: results stay in registers, a 30th of an import"
)]

use core::ffi::{CStr, c_char};
use core::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;

use super::errors::{Fault, of, origin};
use super::import::{Imported, Protocol};
use super::release::{Destination, drain_releases};
use super::shared::share_access;
use crate::cuda::Trust;
use crate::dlpack::{Abi, Legacy, ManagedTensor, Versioned};
use crate::error::{Error, ErrorKind, Result};
use crate::import::Import;

/// A tensor out of a capsule, in the form that its name said.
pub(super) enum Taken {
    Versioned(ManagedTensor<Versioned>),
    Legacy(ManagedTensor<Legacy>),
}

/// A capsule that owns the tensor until a consumer takes it.
pub(super) fn wrap<A: Abi>(py: Python<'_>, tensor: ManagedTensor<A>) -> PyResult<Bound<'_, PyAny>> {
    let tensor = tensor.into_raw();
    // SAFETY: the tensor is not null and the name is static.
    let capsule = unsafe { ffi::PyCapsule_New(tensor.cast(), A::CAPSULE.as_ptr(), Some(destructor::<A>)) };
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
unsafe extern "C" fn destructor<A: Abi>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule, as the caller promises; no exception is set by asking.
    if unsafe { ffi::PyCapsule_IsValid(capsule, A::CAPSULE.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: the name was compared.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, A::CAPSULE.as_ptr()) };
    // SAFETY: the name is a fresh one, so the pointer is the one of `wrap` and was not taken.
    let tensor = unsafe { ManagedTensor::from_raw(tensor.cast::<A>()) };
    // SAFETY: the thread is attached.
    unsafe { sparing_exceptions(|| drop(tensor)) };
}

/// Runs what may run Python code; an exception that is on its way survives it, and one that it leaves behind is reported
/// as those of `__del__` are, because nobody is there to catch it.
///
/// # Safety
///
/// The thread is attached.
#[allow(deprecated, reason = "what replaces the two since 3.12 is not in the stable ABI of 3.10")]
pub(super) unsafe fn sparing_exceptions(run: impl FnOnce()) {
    // SAFETY: the thread is attached.
    if unsafe { ffi::PyErr_Occurred() }.is_null() {
        // Nothing is on its way, as nearly always.
        run();
        // SAFETY: as above.
        return unsafe { report_exception() };
    }
    let (mut class, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // Not through PyO3, which lets a panic that travels as an exception loose.
    // SAFETY: the thread is attached; three places for three references.
    unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut value, &raw mut traceback) };
    run();
    // SAFETY: as above.
    unsafe { report_exception() };
    // SAFETY: the references that were fetched; null for no exception.
    unsafe { ffi::PyErr_Restore(class, value, traceback) };
}

/// Has `sys.unraisablehook` tell of the exception that is set, if one is.
///
/// # Safety
///
/// The thread is attached.
unsafe fn report_exception() {
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        // SAFETY: as above; no object to name.
        unsafe { ffi::PyErr_WriteUnraisable(null_mut()) };
    }
}

/// Takes the tensor out of a capsule: it is renamed in the same step in which the pointer is read, and only then looked
/// at, so that every way on releases it once.
#[inline(always)]
pub(super) fn take(object: &Bound<'_, PyAny>) -> Result<Taken> {
    // SAFETY: any object may be asked for its type.
    if unsafe { ffi::PyCapsule_CheckExact(object.as_ptr()) } == 0 {
        return Err(no_capsule(object));
    }
    with_critical_section(object, || {
        let name = name(object);
        if name == Some(Versioned::CAPSULE) {
            // SAFETY: a capsule of this name, which no other thread changes meanwhile.
            return unsafe { take_as::<Versioned>(object) }.map(Taken::Versioned);
        }
        if name == Some(Legacy::CAPSULE) {
            // SAFETY: as above.
            return unsafe { take_as::<Legacy>(object) }.map(Taken::Legacy);
        }
        Err(no_tensor(name))
    })
}

/// As [`take`], of a capsule that `object` handed out, which is let go of. Its destructor is to raise nothing; what it raises
/// all the same would surface in somebody else's call.
#[inline(always)]
pub(super) fn take_from(object: &Bound<'_, PyAny>, capsule: Bound<'_, PyAny>) -> Result<Taken> {
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
unsafe fn take_as<A: Abi>(capsule: &Bound<'_, PyAny>) -> Result<ManagedTensor<A>> {
    // SAFETY: a capsule.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), A::CAPSULE.as_ptr()) };
    if tensor.is_null() {
        drop(PyErr::take(capsule.py()));
        return Err(no_tensor(None));
    }
    // SAFETY: a capsule, and a static name.
    unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED_CAPSULE.as_ptr()) };
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

/// Imports the tensor in a capsule that an older interface handed out, which is consumed.
///
/// The capsule carries no stream: the caller has ordered the work on it.
///
/// # Errors
///
/// `TypeError` for an object that is no capsule; `ArrayError` for a capsule of another name, such as one that was
/// consumed, and for an array that cannot be used.
///
/// ```no_run
/// use interop_core::python::import_capsule;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn nbytes(capsule: &Bound<'_, PyAny>) -> PyResult<usize> {
///     Ok(import_capsule(capsule)?.import.facts().nbytes())
/// }
/// ```
pub fn import_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Imported> {
    drain_releases(capsule.py());
    share_access(capsule.py())?;
    let mut import = Import::NOTHING;
    let mut to = Destination { import: &mut import, trust: Trust::Nothing };
    let received = take(capsule).and_then(|taken| to.receive_taken(taken));
    let protocol = received.map_err(|error| of(capsule, error))?;
    Ok(Imported { import, protocol })
}

/// The tensor in a capsule that `object` handed out.
pub(super) fn from_capsule(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    capsule: Bound<'_, PyAny>,
) -> core::result::Result<Protocol, Fault> {
    let taken = take_from(object, capsule)?;
    Ok(to.receive_taken(taken).map_err(|error| of(object, error))?)
}
