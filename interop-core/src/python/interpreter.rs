//! Functions of the interpreter that every CPython exports and the stable ABI of 3.10 does not list.
//!
//! They are looked up once, by name. Each has a way to do without.
#![expect(unsafe_code, reason = "calls C functions that were looked up by name")]

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use std::sync::OnceLock;

use pyo3::exceptions::{PyAttributeError, PyException};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

type CurrentState = unsafe extern "C" fn() -> *mut ffi::PyThreadState;

type VectorcallMethod = unsafe extern "C" fn(
    name: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type OptionalAttribute =
    unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut *mut ffi::PyObject) -> c_int;

/// What was found.
#[derive(Clone, Copy)]
struct Functions {
    current_state: Option<CurrentState>,
    vectorcall_method: Option<VectorcallMethod>,
    optional_attribute: Option<OptionalAttribute>,
}

fn functions() -> Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    *FUNCTIONS.get_or_init(|| {
        // The name of a function, and the one that it had before 3.13.
        let either = |name: &CStr, before: &CStr| match lookup(name) {
            function if function.is_null() => lookup(before),
            function => function,
        };
        let state = either(c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet");
        let attribute = either(c"PyObject_GetOptionalAttr", c"_PyObject_LookupAttr");
        let method = lookup(c"PyObject_VectorcallMethod");
        Functions {
            // SAFETY: the type of the function since 3.13, and up to 3.12 under the other name; null is `None`.
            current_state: unsafe { transmute::<*mut c_void, Option<CurrentState>>(state) },
            // SAFETY: the type of the function since 3.9.
            vectorcall_method: unsafe { transmute::<*mut c_void, Option<VectorcallMethod>>(method) },
            // SAFETY: the type of the function under both names, since 3.7.
            optional_attribute: unsafe { transmute::<*mut c_void, Option<OptionalAttribute>>(attribute) },
        }
    })
}

/// Whether this thread may use Python objects. No, where that cannot be found out.
///
/// The thread has a state and it is the current one. `PyGILState_Check` says yes without looking once the interpreter has
/// ended, or once there was a second one.
pub(crate) fn is_attached() -> bool {
    // SAFETY: it may be called on any thread, before, during and after the life of the interpreter.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        return false;
    }
    // SAFETY: likewise; null when the thread has no state.
    let own = unsafe { ffi::PyGILState_GetThisThreadState() };
    // SAFETY: likewise; null when no thread state is current.
    let current = functions().current_state.map(|current| unsafe { current() });
    !own.is_null() && current == Some(own)
}

/// Runs `run` on a thread that is attached: this one if it is, also while the interpreter ends.
pub(crate) fn with_attached<R>(run: impl FnOnce(Python<'_>) -> R) -> R {
    if is_attached() {
        // SAFETY: the thread is attached, as was just seen.
        run(unsafe { Python::assume_attached() })
    } else {
        Python::attach(run)
    }
}

/// The value of an attribute; `None` if the object has none. An exception in a property is not "none".
///
/// To be told so by an exception costs several times as much as the value.
///
/// # Errors
///
/// What a property raises.
pub(crate) fn attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let Some(get) = functions().optional_attribute else {
        return match object.getattr(name) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
            Err(error) => Err(error),
        };
    };
    let mut value = core::ptr::null_mut();
    // SAFETY: live objects, of which the second is a string, and a place for an object.
    if unsafe { get(object.as_ptr(), name.as_ptr(), &raw mut value) } < 0 {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference, or null for none.
    Ok(unsafe { Bound::from_owned_ptr_or_opt(py, value) })
}

/// The int that an object stands for, by the `__index__` of its class: as `operator.index`, which does not look at attributes
/// of the object itself, nor at what a subclass of `int` makes of its operators.
///
/// # Errors
///
/// `TypeError` for an object that stands for none; what `__index__` raises.
pub(crate) fn index<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a live object, and the thread is attached.
    let index = unsafe { ffi::PyNumber_Index(object.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), index) }
}

/// A module that somebody imported, unless its place says that there is none, as `None` does: it costs a tenth of an import that finds it.
pub(crate) fn imported<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a string, and the thread is attached.
    let module = unsafe { ffi::PyImport_GetModule(name.as_ptr()) };
    // SAFETY: a new reference, or null; an exception says that `sys.modules` is none, and the import says so too.
    let module = unsafe { Bound::from_owned_ptr_or_opt(name.py(), module) };
    if module.is_none() {
        drop(PyErr::take(name.py()));
    }
    module.filter(|module| !module.is_none())
}

/// Calls a method with one keyword argument for each of `names`.
///
/// # Errors
///
/// What the method raises.
#[inline]
pub(crate) fn call_with_keywords<'py, const N: usize>(
    object: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
    names: &Bound<'py, PyTuple>,
    values: [&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    const MOST: usize = 2;
    const { assert!(N <= MOST) };
    let Some(call) = functions().vectorcall_method else {
        return call_with_dict(object, method, names, &values);
    };
    // The object stands where a positional argument would; the first place is the callee's to write to.
    let mut arguments = [core::ptr::null_mut(); MOST + 2];
    arguments[1] = object.as_ptr();
    for (argument, value) in arguments[2..].iter_mut().zip(values) {
        *argument = value.as_ptr();
    }
    let scratch = 1_usize << (usize::BITS - 1);
    let first = arguments.as_mut_ptr().wrapping_add(1);
    // SAFETY: live objects, one value for each name, and a writable place before the first argument, as the flag says.
    let value = unsafe { call(method.as_ptr(), first, 1 | scratch, names.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), value) }
}

/// As [`call_with_keywords`], by what every stable ABI has.
#[cold]
fn call_with_dict<'py>(
    object: &Bound<'py, PyAny>,
    method: &Bound<'py, PyString>,
    names: &Bound<'py, PyTuple>,
    values: &[&Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(object.py());
    for (name, value) in names.iter_borrowed().zip(values) {
        keywords.set_item(name, value)?;
    }
    object.getattr(method)?.call((), Some(&keywords))
}

/// The address of a symbol of the running program, or null.
#[cfg(unix)]
fn lookup(name: &CStr) -> *mut c_void {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const core::ffi::c_char) -> *mut c_void;
    }
    // `RTLD_DEFAULT`: all libraries of the program, in the order in which they were loaded.
    let everywhere = if cfg!(target_vendor = "apple") { usize::MAX - 1 } else { 0 };
    // SAFETY: a constant of the platform and a C string.
    unsafe { dlsym(core::ptr::without_provenance_mut(everywhere), name.as_ptr()) }
}

/// The address of a symbol of the interpreter's library, or null.
#[cfg(windows)]
fn lookup(name: &CStr) -> *mut c_void {
    let Some(library) = interpreter_library() else { return core::ptr::null_mut() };
    // SAFETY: any symbol has an address, and nothing is done with it here.
    unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }
        .map_or(core::ptr::null_mut(), |symbol| *symbol)
}

/// The library that the interpreter is in, which is named for its version and kind: `python313.dll`, with `t` without the
/// lock, with `_d` for debugging. `python3.dll` has the stable ABI only.
#[cfg(windows)]
fn interpreter_library() -> Option<libloading::os::windows::Library> {
    // SAFETY: it may be called at any time.
    let version = unsafe { ffi::Py_GetVersion() };
    // SAFETY: a constant of the interpreter, such as "3.13.1 (main, …)".
    let version = unsafe { CStr::from_ptr(version) };
    let mut numbers = version.to_str().ok()?.split('.');
    let (major, minor) = (numbers.next()?, numbers.next()?);
    ["", "t", "_d", "t_d"].iter().find_map(|kind| {
        let name = format!("python{major}{minor}{kind}.dll");
        libloading::os::windows::Library::open_already_loaded(name).ok()
    })
}

/// Nothing can be looked up here.
#[cfg(not(any(unix, windows)))]
fn lookup(_: &CStr) -> *mut c_void {
    core::ptr::null_mut()
}

/// What a class says of itself, if it does: a metaclass may raise anything, and its objects be arrays all the same. Only an
/// interrupt is none of its answers.
pub(crate) fn ignore_exception<T>(py: Python<'_>, answer: PyResult<T>) -> PyResult<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(None),
        Err(error) => Err(error),
    }
}
