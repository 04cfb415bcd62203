//! Adds the buffer protocol to an existing class.
//!
//! `PyO3` creates classes of the stable ABI of 3.10 without the buffer protocol, and no function adds it later. So what
//! a class gets depends on the running interpreter:
//!
//! - Python 3.12 and newer: a method `__buffer__` (PEP 688), from which Python creates the slots.
//! - Python 3.10 and 3.11: the two functions, written to the type object. Their offset is fixed in these versions, and
//!   verified with the type `bytes` before anything is written.
//! - An interpreter with another offset, such as a debug build that traces references: nothing. Only `__array__` is
//!   available.
#![expect(unsafe_code, reason = "fills slots of types and answers calls of Python")]

use core::ffi::{c_int, c_void};
use core::ptr::fn_addr_eq;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::array::info::ArrayInfo;
use crate::array::stream::PendingWork;
use crate::python::class::array_class::{ArrayClass, body, struct_of};
use crate::python::class::buffer::abi::{
    Buffer, BufferProcs, Flags, GET_SLOT, GetBuffer, RELEASE_SLOT, ReleaseBuffer,
};
use crate::python::class::buffer::fill::{fill, get, lend, permit, release};
use crate::python::class::exported_array::{ExportedArray, of_instance};
use crate::python::class::instance::Instance;
use crate::python::class::method::{Call, method};
use crate::python::convert::extract_integer;

/// Adds the buffer protocol to the class, unless the class defines it itself.
///
/// # Errors
///
/// If Python cannot create the method.
pub(crate) fn install<T: ArrayClass>(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    if py.version_info() < (3, 12) {
        // SAFETY: the functions accept instances of `T`, and `class` is the class of `T`.
        return unsafe { fill_slots(class, get::<T>) };
    }
    let name = pyo3::intern!(py, "__buffer__");
    if class.getattr("__dict__")?.contains(name)? {
        return Ok(());
    }
    let lent = (
        c"__buffer__",
        Call::One(buffer::<T>),
        c"__buffer__($self, flags, /)\n--\n\nA memoryview of the array, where the host can reach it.",
    );
    class.setattr(name, method(py, class.as_type_ptr(), lent)?)
}

/// The offset of `tp_as_buffer` in a type object of CPython 3.10 and 3.11, in words.
const AS_BUFFER: usize = 20;

/// Returns the buffer functions of a type of CPython 3.10 or 3.11.
///
/// # Safety
///
/// The interpreter is one of these versions.
unsafe fn procs(class: *mut ffi::PyTypeObject) -> *mut BufferProcs {
    // SAFETY: in every build of these versions a type object is longer than this offset.
    unsafe { class.cast::<*mut BufferProcs>().wrapping_add(AS_BUFFER).read() }
}

/// Writes the functions to the type object, if this interpreter stores them at the expected offset.
///
/// # Safety
///
/// Python is older than 3.12, and `get` accepts instances of `class`.
unsafe fn fill_slots(class: &Bound<'_, PyType>, get: GetBuffer) -> PyResult<()> {
    let known = class.py().get_type::<PyBytes>().as_type_ptr();
    // SAFETY: the arguments are a type and a slot number. Since 3.10 static types are allowed too.
    let said = unsafe { ffi::PyType_GetSlot(known, GET_SLOT) };
    // SAFETY: Python is 3.10 or 3.11, because older versions do not load this library.
    let found = unsafe { procs(known) };
    if said.is_null() || found.is_null() {
        return Ok(());
    }
    // SAFETY: the pointer is not null. If the offset is right, it points to the struct of functions. Otherwise it is
    // another pointer member of a type; all of these point to static memory of at least a word.
    let found = unsafe { found.cast::<*mut c_void>().read() };
    if found != said {
        return Ok(());
    }
    // SAFETY: Python is 3.10 or 3.11, and the offset was verified.
    let inherited = unsafe { getter(&class.getattr("__base__")?.cast_into::<PyType>()?) };
    // SAFETY: as the caller promises.
    unsafe { hand_down(class, inherited, get) }
}

/// Returns the function of the class, which may be inherited.
///
/// # Safety
///
/// The offset was verified.
unsafe fn getter(class: &Bound<'_, PyType>) -> Option<GetBuffer> {
    // SAFETY: as the caller promises.
    let procs = unsafe { procs(class.as_type_ptr()) };
    if procs.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null. It points to the class's struct of functions, because the offset was verified.
    unsafe { procs.read() }.get
}

/// Sets the functions of a class and its subclasses.
///
/// A class copies the functions of its base when it is created. So only missing functions and those equal to
/// `inherited` are replaced; a class with others keeps them.
///
/// # Safety
///
/// The offset was verified, and `get` accepts instances of `class`.
unsafe fn hand_down(class: &Bound<'_, PyType>, inherited: Option<GetBuffer>, get: GetBuffer) -> PyResult<()> {
    // SAFETY: as the caller promises.
    let held = unsafe { getter(class) };
    if held.is_some_and(|held| !inherited.is_some_and(|inherited| fn_addr_eq(held, inherited))) {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    let procs = unsafe { procs(class.as_type_ptr()) };
    if procs.is_null() {
        return Ok(());
    }
    // SAFETY: the class was created at run time, as were all its subclasses. The struct is a part of its type object.
    // Classes are changed with the interpreter's lock held, as it is here.
    unsafe { procs.write(BufferProcs { get: Some(get), release: Some(release) }) };
    // Calls the function of `type`, because a metaclass may override it and return any class.
    let derived = class.py().get_type::<PyType>().call_method1("__subclasses__", (class,))?;
    for derived in derived.try_iter()? {
        // SAFETY: an instance of a subclass is an instance of the class.
        unsafe { hand_down(&derived?.cast_into::<PyType>()?, held, get) }?;
    }
    Ok(())
}

/// # Safety
///
/// Called by Python as a method of `T` with one argument.
unsafe extern "C" fn buffer<T: ArrayClass>(
    this: *mut ffi::PyObject,
    flags: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let py = array.py();
        // SAFETY: the caller holds a reference to the argument.
        let flags = unsafe { Borrowed::from_ptr(py, flags) };
        let flags = c_int::try_from(extract_integer(&flags, "flags")?).unwrap_or(c_int::MAX);
        // The request is checked here. The owner then requests everything, and waits for pending work.
        let wanted = Flags(flags & Flags::WRITABLE.0 | Flags::STRIDES.0);
        let info = ArrayInfo { pending: PendingWork::NOTHING, ..struct_of(array).info()? };
        permit(py, &info, wanted)?;
        let exported = of_instance(py, Instance(array.clone().unbind()))?;
        let buffer_owner = buffer_owner(py)?.call1((PyTuple::new(py, [exported])?,))?;
        // SAFETY: the argument is a live object.
        let view = unsafe { ffi::PyMemoryView_FromObject(buffer_owner.as_ptr()) };
        // SAFETY: a new reference, or null with an exception set.
        Ok(unsafe { Bound::from_owned_ptr_or_err(py, view) }?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// Returns the class of the objects from which `__buffer__` creates its memoryviews: tuples of an array, with the
/// buffer protocol.
///
/// A memoryview of the array itself would call `__buffer__` again, and one of an address would keep nothing alive. A
/// tuple needs no fields of its own, whose offset depends on the interpreter.
fn buffer_owner(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static BUFFER_OWNER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = BUFFER_OWNER.get_or_try_init(py, || {
        let slot = |slot, function| ffi::PyType_Slot { slot, pfunc: function };
        let mut slots = [
            slot(GET_SLOT, get_from_owner as GetBuffer as *mut c_void),
            slot(RELEASE_SLOT, release as ReleaseBuffer as *mut c_void),
            slot(0, core::ptr::null_mut()),
        ];
        #[allow(
            clippy::cast_possible_truncation,
            clippy::unnecessary_cast,
            reason = "flags of 32 bits, in a `c_ulong`, which has as many on Windows and more elsewhere"
        )]
        let mut spec = ffi::PyType_Spec {
            name: c"interop_core.BufferOwner".as_ptr(),
            basicsize: 0,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as u32,
            slots: slots.as_mut_ptr(),
        };
        let bases = PyTuple::new(py, [py.get_type::<PyTuple>()])?;
        // SAFETY: the spec is complete and its name is static. Sizes of 0 are inherited from the base.
        let class = unsafe { ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr()) };
        // SAFETY: a new reference, or null with an exception set.
        let class = unsafe { Bound::from_owned_ptr_or_err(py, class) }?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py))
}

/// `bf_getbuffer` of a buffer owner.
///
/// # Safety
///
/// Called by Python with a buffer owner, a pointer for the buffer, and the thread attached.
unsafe extern "C" fn get_from_owner(this: *mut ffi::PyObject, place: *mut Buffer, flags: c_int) -> c_int {
    let run = |py: Python<'_>| {
        // SAFETY: the object is alive; Python holds a reference to it during the call.
        let buffer_owner = unsafe { Borrowed::from_ptr(py, this) };
        let array = buffer_owner.cast::<PyTuple>()?.get_item(0)?;
        // Python code can create a buffer owner of any object.
        let array = array.cast::<ExportedArray>().map_err(|_| PyTypeError::new_err("not an array"))?;
        lend(array, &buffer_owner, flags)
    };
    // SAFETY: as the caller promises.
    unsafe { fill(place, run) }
}
