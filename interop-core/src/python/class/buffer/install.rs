//! How a class that exists already gets the buffer protocol.
//!
//! `PyO3` makes classes of the stable ABI of 3.10 without it, and there is no function that adds it later. So it depends
//! on the interpreter that runs:
//!
//! | Python | what is given to the class |
//! | --- | --- |
//! | 3.12 and newer | a method `__buffer__` (PEP 688), from which Python makes the rest |
//! | 3.10 and 3.11 | the two functions, in the type object; their place is fixed for these two versions, and compared with what Python says of `bytes` before anything is written |
//! | an interpreter that keeps them elsewhere, such as a debug build that traces references | nothing: `__array__` is what there is |
#![expect(unsafe_code, reason = "fills slots of types and answers calls of Python")]

use core::ffi::{c_int, c_void};
use core::ptr::fn_addr_eq;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::array::info::ArrayInfo;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::python::class::array_class::{ArrayClass, body, struct_of};
use crate::python::class::buffer::abi::{
    Buffer, BufferProcs, Flags, GET_SLOT, GetBuffer, RELEASE_SLOT, ReleaseBuffer,
};
use crate::python::class::buffer::fill::{fill, get, lend, permit, release};
use crate::python::class::exported_array::{ExportedArray, of_instance};
use crate::python::class::instance::Instance;
use crate::python::class::method::{Call, method};
use crate::python::convert::extract_integer;

/// Gives the class the buffer protocol, unless it has one of its own.
///
/// # Errors
///
/// When Python cannot make the method.
pub(crate) fn install<T: ArrayClass>(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    if py.version_info() < (3, 12) {
        // SAFETY: the functions are for instances of `T`, of which this is the class.
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

/// The place of `tp_as_buffer` in a type object of CPython 3.10 and 3.11, in words.
const AS_BUFFER: usize = 20;

/// Where a type of CPython 3.10 or 3.11 keeps its buffer functions.
///
/// # Safety
///
/// The interpreter is one of these versions.
unsafe fn procs(class: *mut ffi::PyTypeObject) -> *mut BufferProcs {
    // SAFETY: a type object of these versions is longer than this, in every build.
    unsafe { class.cast::<*mut BufferProcs>().wrapping_add(AS_BUFFER).read() }
}

/// Writes the functions into the type object, where this interpreter has them at the place that is known.
///
/// # Safety
///
/// Python is older than 3.12, and `get` serves instances of `class`.
unsafe fn fill_slots(class: &Bound<'_, PyType>, get: GetBuffer) -> PyResult<()> {
    let known = class.py().get_type::<PyBytes>().as_type_ptr();
    // SAFETY: a type, and the number of a slot; since 3.10 static types may be asked too.
    let said = unsafe { ffi::PyType_GetSlot(known, GET_SLOT) };
    // SAFETY: Python is 3.10 or 3.11: older ones do not load this library.
    let found = unsafe { procs(known) };
    if said.is_null() || found.is_null() {
        return Ok(());
    }
    // SAFETY: not null: a struct of functions if the place is right, and some other member of a type if it is not, which
    // all point to static memory of a word or more.
    let found = unsafe { found.cast::<*mut c_void>().read() };
    if found != said {
        return Ok(());
    }
    // SAFETY: of these versions, whose place is the known one.
    let inherited = unsafe { getter(&class.getattr("__base__")?.cast_into::<PyType>()?) };
    // SAFETY: as the caller promises.
    unsafe { hand_down(class, inherited, get) }
}

/// The function that the class has, perhaps from its base.
///
/// # Safety
///
/// The place is known.
unsafe fn getter(class: &Bound<'_, PyType>) -> Option<GetBuffer> {
    // SAFETY: as the caller promises.
    let procs = unsafe { procs(class.as_type_ptr()) };
    if procs.is_null() {
        return None;
    }
    // SAFETY: not null, and so the class's struct of functions, as the place is right.
    unsafe { procs.read() }.get
}

/// Gives the functions to a class and to those that derive from it, in the place of none and of `inherited`: who has others
/// keeps them. A class has a copy of its base's functions, made when it was.
///
/// # Safety
///
/// The place is known, and `get` serves instances of `class`.
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
    // SAFETY: the struct of a class made at run time, as are all that derive from one, which is a part of its type object;
    // classes are changed with the interpreter's lock held, and so it is here.
    unsafe { procs.write(BufferProcs { get: Some(get), release: Some(release) }) };
    // By the function of `type`: a metaclass may have another, that names any class.
    let derived = class.py().get_type::<PyType>().call_method1("__subclasses__", (class,))?;
    for derived in derived.try_iter()? {
        // SAFETY: what derives from the class has instances of it.
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
        // Refused here for what was asked; the lender is asked for everything, and waits for what is pending.
        let wanted = Flags(flags & Flags::WRITABLE.0 | Flags::STRIDES.0);
        let info =
            ArrayInfo { stream: PendingWork::on(StreamHandle::NothingPending), ..struct_of(array).info()? };
        permit(py, &info, wanted)?;
        let exported = of_instance(py, Instance(array.clone().unbind()))?;
        let buffer_owner = buffer_owner(py)?.call1((PyTuple::new(py, [exported])?,))?;
        // SAFETY: an object.
        let view = unsafe { ffi::PyMemoryView_FromObject(buffer_owner.as_ptr()) };
        // SAFETY: a new reference, or null with an exception set.
        Ok(unsafe { Bound::from_owned_ptr_or_err(py, view) }?.unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// The class of the objects from which `__buffer__` makes its memoryviews: tuples of an array, with the buffer protocol.
///
/// A memoryview of the array itself would ask `__buffer__` again, and one of an address would keep nothing alive. A tuple
/// needs no room for fields of its own, whose place an interpreter decides.
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
            name: c"interop_core.Lender".as_ptr(),
            basicsize: 0,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as u32,
            slots: slots.as_mut_ptr(),
        };
        let bases = PyTuple::new(py, [py.get_type::<PyTuple>()])?;
        // SAFETY: a complete description with a static name; sizes of 0 are those of the base.
        let class = unsafe { ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr()) };
        // SAFETY: a new reference, or null with an exception set.
        let class = unsafe { Bound::from_owned_ptr_or_err(py, class) }?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py))
}

/// `bf_getbuffer` of a lender.
///
/// # Safety
///
/// Called by Python with a lender, a place for the buffer, and the thread attached.
unsafe extern "C" fn get_from_owner(this: *mut ffi::PyObject, place: *mut Buffer, flags: c_int) -> c_int {
    let run = |py: Python<'_>| {
        // SAFETY: a live object, to which Python holds a reference during the call.
        let buffer_owner = unsafe { Borrowed::from_ptr(py, this) };
        let array = buffer_owner.cast::<PyTuple>()?.get_item(0)?;
        // Anybody can make a lender of anything.
        let array = array.cast::<ExportedArray>().map_err(|_| PyTypeError::new_err("not an array"))?;
        lend(array, &buffer_owner, flags)
    };
    // SAFETY: as the caller promises.
    unsafe { fill(place, run) }
}
