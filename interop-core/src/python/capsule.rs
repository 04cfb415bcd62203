//! Capsules: those of DLPack, which are created with a destructor and consumed by renaming; those around values; and the one
//! with the record of borrows that the modules of an interpreter share.
#![expect(unsafe_code, reason = "capsules hold raw pointers")]

use core::ffi::{CStr, c_void};
use core::ptr::{NonNull, from_ref};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::sync::critical_section::with_critical_section;

use crate::cuda::memory_check::Verification;
use crate::driver::release::reach::contain_panic;
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::memory::import::{Filled, Import, ImportSlot};
use crate::process::borrow_registry::{OWN, SharedTable, record_in};
use crate::protocols::dlpack::abi::{Legacy, TensorAbi, Versioned};
use crate::protocols::dlpack::export::drop_unconsumed;
use crate::protocols::dlpack::managed_tensor::{ManagedTensor, release};
use crate::python::errors::{origin, with_origin};
use crate::python::interpreter::{is_attached, with_saved_exception};
use crate::python::py_ref::release_deferred_refs;

/// Creates a capsule that owns the tensor, which this crate has exported, until a consumer takes it.
pub(crate) fn wrap<A: TensorAbi>(py: Python<'_>, tensor: ManagedTensor<A>) -> PyResult<Bound<'_, PyAny>> {
    let tensor = tensor.into_raw();
    let capsule = new_capsule(py, tensor.cast(), A::CAPSULE_NAME, Some(destructor::<A>));
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
    // Consumers rename a capsule that they take.
    // SAFETY: the object is alive, as the caller promises.
    let Some(tensor) = (unsafe { capsule_pointer(capsule, A::CAPSULE_NAME) }) else { return };
    // SAFETY: the name is unchanged, so `wrap` set the pointer and no consumer took it.
    let tensor = unsafe { ManagedTensor::from_raw(tensor.as_ptr().cast::<A>()) };
    // SAFETY: `wrap` is given tensors of this crate alone.
    let release = || unsafe { drop_unconsumed(tensor) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(release) };
}

/// Fills a slot with the tensor of a capsule. The name of the capsule states the form of the tensor.
///
/// Ownership is taken before validation. Every path, including errors, releases the tensor exactly once.
pub(crate) fn receive_capsule(
    slot: &mut ImportSlot,
    capsule: &Bound<'_, PyAny>,
    verification: Verification,
) -> Result<Filled> {
    // SAFETY: the function accepts any object.
    if unsafe { ffi::PyCapsule_CheckExact(capsule.as_ptr()) } == 0 {
        let allowed =
            "a capsule named \"dltensor\" or \"dltensor_versioned\", which `__dlpack__` of an array returns";
        return Err(Error::new(ErrorKind::Type, "capsule", origin(capsule), allowed));
    }
    if let Some(tensor) = take::<Versioned>(capsule) {
        return receive(slot, tensor, verification);
    }
    let tensor = take::<Legacy>(capsule).ok_or_else(|| no_tensor(capsule))?;
    receive(slot, tensor, verification)
}

/// Takes the tensor from a capsule, if it has the unused name of this form, and renames the capsule in the same critical
/// section.
#[inline]
fn take<A: TensorAbi>(capsule: &Bound<'_, PyAny>) -> Option<ManagedTensor<A>> {
    with_critical_section(capsule, || {
        // SAFETY: the object is alive.
        let tensor = unsafe { capsule_pointer(capsule.as_ptr(), A::CAPSULE_NAME) }?;
        // SAFETY: the object is a capsule, and the name is static.
        unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED_CAPSULE_NAME.as_ptr()) };
        // SAFETY: the protocol states that a capsule of this name holds such a struct, and that whoever renames it owns the
        // struct.
        Some(unsafe { ManagedTensor::from_raw(tensor.as_ptr().cast()) })
    })
}

#[cold]
fn no_tensor(capsule: &Bound<'_, PyAny>) -> Error {
    // SAFETY: the object is a capsule.
    let name = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    // SAFETY: capsule names are C strings, which outlive their capsules.
    let name = (!name.is_null()).then(|| format!("{:?}", unsafe { CStr::from_ptr(name) }));
    let found = format!("a capsule named {}", name.as_deref().unwrap_or("NULL"));
    let allowed = "\"dltensor\" or \"dltensor_versioned\"; a capsule can be taken once";
    Error::new(ErrorKind::Capsule, "capsule", found, allowed)
}

/// Fills a slot with a tensor from Python. Releases the tensor on an error.
pub(crate) fn receive<A: TensorAbi>(
    slot: &mut ImportSlot,
    tensor: ManagedTensor<A>,
    verification: Verification,
) -> Result<Filled> {
    // SAFETY: `release_foreign::<A>` releases a struct of the form `A`, on any thread.
    let filled = unsafe { tensor.fill_slot(slot, release_foreign::<A>, verification) };
    filled.map_err(|Refused { value, error }| {
        // SAFETY: the error returned a struct of the form `A`, and nobody else releases it.
        unsafe { release_foreign::<A>(value.into_non_null()) };
        error
    })
}

/// Releases a foreign tensor. Its deleter can be Python code, so a pending exception is saved and restored.
///
/// # Safety
///
/// As [`release`].
pub(crate) unsafe fn release_foreign<A: TensorAbi>(tensor: NonNull<()>) {
    // SAFETY: as the caller promises.
    let release = || unsafe { release::<A>(tensor) };
    if is_attached() {
        // SAFETY: the thread is attached.
        unsafe { with_saved_exception(release) };
    } else {
        release();
    }
}

/// Imports the tensor of a capsule, for interfaces that pass capsules instead of arrays. Consumes the capsule.
///
/// A capsule contains no stream: the caller has made its work wait for the producer's.
///
/// # Errors
///
/// - `TypeError` for an object that is not a capsule.
/// - `ArrayError` for a capsule of another name, such as one that was consumed, and for an array that cannot be used.
///
/// ```no_run
/// use interop_core::python::import_capsule;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn nbytes(capsule: &Bound<'_, PyAny>) -> PyResult<usize> {
///     Ok(import_capsule(capsule)?.info().nbytes())
/// }
/// ```
pub fn import_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Import> {
    release_deferred_refs(capsule.py());
    share_borrow_table(capsule.py())?;
    let mut slot = ImportSlot::new();
    let filled = receive_capsule(&mut slot, capsule, Verification::Full);
    let filled = filled.map_err(|error| with_origin(capsule, error))?;
    Ok(slot.into_import(filled))
}

/// Creates a capsule around a pointer, which is not null.
pub(crate) fn new_capsule<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: &'static CStr,
    destructor: Option<ffi::PyCapsule_Destructor>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the name is static, and the destructor gets the capsule alone.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), destructor) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// Returns the pointer of a capsule of this name, or `None` for any other object.
///
/// # Safety
///
/// The object is alive, and the thread is attached.
#[inline]
pub(crate) unsafe fn capsule_pointer(object: *mut ffi::PyObject, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the function accepts any object, and sets no exception.
    if unsafe { ffi::PyCapsule_IsValid(object, name.as_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the capsule is valid under this name, as was checked.
    NonNull::new(unsafe { ffi::PyCapsule_GetPointer(object, name.as_ptr()) })
}

/// Moves a value into a capsule, which drops it with the thread attached. The current exception stays set meanwhile.
pub(crate) fn in_capsule<T: Send + 'static>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyAny>> {
    let place = Box::into_raw(Box::new(value));
    new_capsule(py, place.cast(), VALUE, Some(drop_value::<T>)).inspect_err(|_| {
        // SAFETY: the box was created above, and no capsule has it.
        drop(unsafe { Box::from_raw(place) });
    })
}

/// The name of the capsule around a value.
const VALUE: &CStr = c"interop_core.value";

/// The destructor of [`in_capsule`]. If other code has renamed the capsule, the value is leaked.
///
/// # Safety
///
/// Python calls this once for a capsule that `in_capsule::<T>` created, with the thread attached.
unsafe extern "C" fn drop_value<T>(capsule: *mut ffi::PyObject) {
    // SAFETY: the object is alive, as the caller promises.
    let Some(place) = (unsafe { capsule_pointer(capsule, VALUE) }) else { return };
    // SAFETY: this is the box of `in_capsule`, and it is freed once.
    let value = unsafe { Box::from_raw(place.cast::<T>().as_ptr()) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(|| contain_panic(|| drop(value))) };
}

/// The name of the table in the interpreter's dict, and of the capsule around it. A change of the layout needs a new
/// name.
const BORROWS: &CStr = c"interop_core.access_table_v3";

/// Makes this module record reads and writes of host memory in the table that all modules of the interpreter share.
///
/// A module calls this before its first export and before its first import. Until then no other module has its memory.
///
/// # Errors
///
/// If Python cannot allocate memory.
pub(crate) fn share_borrow_table(py: Python<'_>) -> PyResult<()> {
    static SHARED: PyOnceLock<()> = PyOnceLock::new();
    SHARED.get_or_try_init(py, || first_of_all(py).map(record_in)).copied()
}

/// Returns the table of the first module that called this.
fn first_of_all(py: Python<'_>) -> PyResult<&'static SharedTable> {
    let own = from_ref(&OWN).cast_mut().cast::<c_void>();
    let own = new_capsule(py, own, BORROWS, None)?;
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: `interpreter` is the interpreter of this thread.
    let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter) };
    // SAFETY: the call returned a borrowed reference, or null if there is no dict.
    let Some(dict) = (unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) }) else { return Ok(&OWN) };
    // `setdefault` is atomic, also in free-threaded builds.
    let first = dict.call_method1("setdefault", (BORROWS.to_string_lossy(), own))?;
    // SAFETY: the object is alive.
    let table = unsafe { capsule_pointer(first.as_ptr(), BORROWS) };
    // SAFETY: a module of this crate stored such a table under this name. Its memory is never unloaded, because no
    // interpreter unloads an extension module.
    Ok(table.map_or(&OWN, |table| unsafe { table.cast::<SharedTable>().as_ref() }))
}
