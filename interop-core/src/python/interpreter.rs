//! The interpreter: which threads are attached, code that runs detached, references that any thread may drop, exceptions, and how
//! deep calls nest.
//!
//! Some functions that every CPython exports are not in the stable ABI of 3.11. These are looked up once, by name, and each has a
//! fallback.
#![expect(unsafe_code, reason = "calls C functions, also such that were looked up by name")]

use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use core::mem::{ManuallyDrop, transmute};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::exceptions::{PyException, PyMemoryError, PyRecursionError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::array::device::Device;
use crate::cuda;
use crate::driver::reach::Handle;
use crate::order::array_info::ArrayInfo;
use crate::order::release::hold::DeferRecording;
use crate::order::release::owner::Owner;
use crate::order::release::queue::poll_in_passing;
use crate::process::fork::PerProcess;

type CurrentState = unsafe extern "C" fn() -> *mut ffi::PyThreadState;

type VectorcallMethod = unsafe extern "C" fn(
    name: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type OptionalAttribute =
    unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut *mut ffi::PyObject) -> c_int;

/// The properties of the interpreter.
#[derive(Clone, Copy)]
struct Functions {
    current_state: Option<CurrentState>,
    vectorcall_method: Option<VectorcallMethod>,
    optional_attribute: Option<OptionalAttribute>,
    /// As `Py_GetVersion` tells.
    is_free_threaded: bool,
}

fn functions() -> Functions {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    *FUNCTIONS.get_or_init(|| {
        // Looks up a function by its name, or by its name before 3.13.
        let either = |name: &CStr, before: &CStr| match lookup(name) {
            function if function.is_null() => lookup(before),
            function => function,
        };
        let state = either(c"PyThreadState_GetUnchecked", c"_PyThreadState_UncheckedGet");
        let attribute = either(c"PyObject_GetOptionalAttr", c"_PyObject_LookupAttr");
        let method = lookup(c"PyObject_VectorcallMethod");
        // SAFETY: the function may be called at any time.
        let version = unsafe { ffi::Py_GetVersion() };
        // SAFETY: the string is static and ends with a zero.
        let version = unsafe { CStr::from_ptr(version) };
        Functions {
            // SAFETY: this is the type of the function since 3.13, and of the one with the older name up to 3.12. Null
            // is `None`.
            current_state: unsafe { transmute::<*mut c_void, Option<CurrentState>>(state) },
            // SAFETY: this is the type of the function since 3.9.
            vectorcall_method: unsafe { transmute::<*mut c_void, Option<VectorcallMethod>>(method) },
            // SAFETY: this is the type of the function under both names, since 3.7.
            optional_attribute: unsafe { transmute::<*mut c_void, Option<OptionalAttribute>>(attribute) },
            is_free_threaded: version.to_bytes().windows(14).any(|part| part == b"free-threading"),
        }
    })
}

/// Returns whether this thread may use Python objects. Returns false if that cannot be determined.
///
/// The thread must have a thread state, and it must be the current one. `PyGILState_Check` is not sufficient: it
/// returns true without a check after the interpreter has ended, or after a second interpreter existed. Nor is
/// `Py_IsInitialized` asked, because an interpreter that ends is no longer initialized and still runs code.
pub(crate) fn is_attached() -> bool {
    // SAFETY: the function may be called on any thread, before, during and after the life of the interpreter. The
    // result is null if the thread has no state, and before and after that life.
    let own = unsafe { ffi::PyGILState_GetThisThreadState() };
    // SAFETY: as above. The result is null if no thread state is current.
    let current = functions().current_state.map(|current| unsafe { current() });
    !own.is_null() && current == Some(own)
}

/// Returns whether CPython was built to run without the interpreter's lock. One extension can run on both builds.
pub(crate) fn is_free_threaded() -> bool {
    functions().is_free_threaded
}

/// Runs `run` while attached. Uses the current attachment if there is one, also while the interpreter ends, which PyO3
/// does not know of. Returns `None` if the thread cannot be attached, because the interpreter ends or has ended.
pub(crate) fn with_attached<R>(run: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    if is_attached() {
        // SAFETY: the check above found the thread attached.
        Some(run(unsafe { Python::assume_attached() }))
    } else {
        Python::try_attach(run)
    }
}

/// Returns the value of an attribute, or `None` if the object does not have it. An exception in a property is an error.
///
/// The direct function is used because an `AttributeError` costs several times as much as the value.
///
/// # Errors
///
/// Exceptions that a property raises.
pub(crate) fn attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let Some(get) = functions().optional_attribute else { return object.getattr_opt(name) };
    let mut value = core::ptr::null_mut();
    // SAFETY: the objects are alive, the second is a string, and the pointer is valid for a write.
    if unsafe { get(object.as_ptr(), name.as_ptr(), &raw mut value) } < 0 {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: the call returned a new reference, or null if there is no attribute.
    Ok(unsafe { Bound::from_owned_ptr_or_opt(py, value) })
}

/// Calls a method without arguments and returns its truth value, or `None` if there is no such method.
pub(crate) fn truth_of(object: &Bound<'_, PyAny>, method: &Bound<'_, PyString>) -> PyResult<Option<bool>> {
    attribute(object, method)?.map(|method| method.call0()?.is_truthy()).transpose()
}

/// Returns a module from `sys.modules`, or `None` if it is missing there or is `None`.
///
/// It costs a tenth of an `import` of a loaded module.
pub(crate) fn imported<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the name is a string, and the thread is attached.
    let module = unsafe { ffi::PyImport_GetModule(name.as_ptr()) };
    // SAFETY: the call returned a new reference or null. An exception means that `sys.modules` is not valid; an import
    // raises it too.
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
/// Exceptions that the method raises.
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
    // The object is passed as the first positional argument. The callee may write to the slot before it.
    let mut arguments = [core::ptr::null_mut(); MOST + 2];
    arguments[1] = object.as_ptr();
    for (argument, value) in arguments[2..].iter_mut().zip(values) {
        *argument = value.as_ptr();
    }
    let scratch = 1_usize << (usize::BITS - 1);
    let first = arguments.as_mut_ptr().wrapping_add(1);
    // SAFETY: all objects are alive, there is one value for each name, and the slot before the first argument is
    // writable, as the flag states.
    let value = unsafe { call(method.as_ptr(), first, 1 | scratch, names.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), value) }
}

/// As [`call_with_keywords`], with functions of every stable ABI.
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
    object.call_method(method, (), Some(&keywords))
}

/// The address of a symbol in the running program, or null.
#[cfg(unix)]
fn lookup(name: &CStr) -> *mut c_void {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const core::ffi::c_char) -> *mut c_void;
    }
    // `RTLD_DEFAULT`: searches all libraries of the program, in the order in which they were loaded.
    let everywhere = if cfg!(target_vendor = "apple") { usize::MAX - 1 } else { 0 };
    // SAFETY: the arguments are a constant of the platform and a C string.
    unsafe { dlsym(core::ptr::without_provenance_mut(everywhere), name.as_ptr()) }
}

/// The address of a symbol in the interpreter's library, or null.
#[cfg(windows)]
fn lookup(name: &CStr) -> *mut c_void {
    let Some(library) = interpreter_library() else { return core::ptr::null_mut() };
    // SAFETY: every symbol has an address, and it is not dereferenced here.
    unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }
        .map_or(core::ptr::null_mut(), |symbol| *symbol)
}

/// The library that contains the interpreter.
///
/// Its name has the version and the build: `python313.dll`, with `t` for free-threaded, with `_d` for debug.
/// `python3.dll` contains only the stable ABI.
#[cfg(windows)]
fn interpreter_library() -> Option<libloading::os::windows::Library> {
    // SAFETY: the function may be called at any time.
    let version = unsafe { ffi::Py_GetVersion() };
    // SAFETY: the result is a constant C string of the interpreter, such as "3.13.1 (main, …)".
    let version = unsafe { CStr::from_ptr(version) };
    let mut numbers = version.to_str().ok()?.split('.');
    let (major, minor) = (numbers.next()?, numbers.next()?);
    ["", "t", "_d", "t_d"].iter().find_map(|kind| {
        let name = format!("python{major}{minor}{kind}.dll");
        libloading::os::windows::Library::open_already_loaded(name).ok()
    })
}

/// No lookup exists on this platform.
#[cfg(not(any(unix, windows)))]
fn lookup(_: &CStr) -> *mut c_void {
    core::ptr::null_mut()
}

/// Returns whether another way may be tried after an exception.
///
/// Not after one that is no `Exception`, such as `KeyboardInterrupt`. Nor after a `RecursionError`: each level of calls
/// would try both ways, so every level would double the time. Nor after a `MemoryError`, which says nothing about the object.
pub(crate) fn is_ordinary(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
        && !error.is_instance_of::<PyRecursionError>(py)
        && !error.is_instance_of::<PyMemoryError>(py)
}

/// Converts an exception from a query of a class to `None`.
///
/// A metaclass may raise anything while its objects are still valid arrays. An exception that is not
/// [ordinary](is_ordinary) is passed on.
pub(crate) fn ignore_exception<T>(py: Python<'_>, value: PyResult<T>) -> PyResult<Option<T>> {
    match value {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_ordinary(py, &error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs code that may call Python. Saves the current exception before and restores it afterwards.
///
/// An exception that the code leaves set is reported like an exception in `__del__`, because no caller can catch it.
///
/// # Safety
///
/// The thread is attached.
#[allow(deprecated, reason = "what replaces the two since 3.12 is not in the stable ABI of 3.11")]
pub(crate) unsafe fn with_saved_exception(run: impl FnOnce()) {
    let (mut class, mut value, mut traceback) = (null_mut(), null_mut(), null_mut());
    // `PyErr::fetch` is not used, because it resumes a panic that was raised as an exception.
    // SAFETY: the thread is attached, and the three pointers are valid for writes.
    unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut value, &raw mut traceback) };
    run();
    // SAFETY: as above.
    unsafe { report_exception() };
    // SAFETY: these are the fetched references, or null without an exception.
    unsafe { ffi::PyErr_Restore(class, value, traceback) };
}

/// Reports the current exception, if one is set, through `sys.unraisablehook`.
///
/// # Safety
///
/// The thread is attached.
pub(crate) unsafe fn report_exception() {
    // SAFETY: the thread is attached.
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        // SAFETY: as above. A null object is allowed.
        unsafe { ffi::PyErr_WriteUnraisable(null_mut()) };
    }
}

/// A call that may run Python code of the caller's: a method of a protocol, `__index__`, a lookup in a class.
///
/// Python counts its own functions alone, at most 1000 of them by default. The calls of this crate and of the extension
/// between two of them need up to 9 KB of stack, in a debug build up to 40 KB. A thread has 8 MB of stack on most systems.
pub(crate) struct NestedCall(());

/// The most calls of a thread within each other. They fit into 2 MB of stack in a debug build.
const MOST_NESTED: u32 = 32;

thread_local!(static NESTED: Cell<u32> = const { Cell::new(0) });

impl NestedCall {
    /// # Errors
    ///
    /// `RecursionError` at the limit.
    #[inline]
    pub(crate) fn enter() -> PyResult<Self> {
        let nested = NESTED.get();
        if nested == MOST_NESTED {
            return Err(too_deep());
        }
        NESTED.set(nested + 1);
        Ok(Self(()))
    }
}

impl Drop for NestedCall {
    #[inline]
    fn drop(&mut self) {
        NESTED.set(NESTED.get() - 1);
    }
}

#[cold]
fn too_deep() -> PyErr {
    let text = format!(
        "maximum recursion depth exceeded while an array is imported or exported: {MOST_NESTED} calls of the extension run within \
         each other on this thread, each made by Python code that the one before it has called"
    );
    PyRecursionError::new_err(text)
}

/// A reference to a Python object that any thread may drop.
///
/// A deleter may run on a thread that is not attached, even while another thread holds the interpreter's lock and waits
/// for this one. So the drop never waits: if the thread is not attached, the reference is deferred, and the next call
/// into this module drops it, or the main thread ([`drop_deferred_refs_soon`]). References that are still deferred when the
/// interpreter ends are leaked.
#[derive(Debug)]
pub(crate) struct PyRef(ManuallyDrop<Py<PyAny>>);

/// An owned reference that is not dropped yet.
struct Reference(NonNull<()>);

// SAFETY: any thread that is attached may drop a reference.
unsafe impl Send for Reference {}

/// The deferred references.
struct PendingDecrefs {
    objects: Mutex<Vec<Reference>>,
    /// The number of references that are not dropped yet. It can be read without the lock.
    waiting: AtomicUsize,
}

static PENDING: PerProcess<PendingDecrefs> = PerProcess::new(PendingDecrefs::after);

impl PendingDecrefs {
    /// A forked process takes over the deferred references of its parent. They are leaked if a thread of the parent
    /// held the lock.
    fn after(parents: Option<&'static Self>) -> Self {
        let objects = parents.and_then(|parents| parents.objects.try_lock().ok());
        let objects = objects.map_or_else(Vec::new, |mut objects| core::mem::take(&mut *objects));
        Self { waiting: AtomicUsize::new(objects.len()), objects: Mutex::new(objects) }
    }

    fn objects(&self) -> MutexGuard<'_, Vec<Reference>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PyRef {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }

    /// The object.
    pub(crate) fn object(&self) -> &Py<PyAny> {
        &self.0
    }
}

impl Drop for PyRef {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, here.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        let Some(object) = NonNull::new(object.into_ptr()) else { return };
        // SAFETY: this is an owned reference to an object.
        unsafe { release(object.cast()) };
    }
}

/// Drops a reference to a Python object, now if the thread is attached.
///
/// # Safety
///
/// The pointer is that of an object, and a reference to it is owned and given up.
unsafe fn release(object: NonNull<()>) {
    if is_attached() {
        // SAFETY: the thread is attached, and the reference is owned, as the caller promises.
        unsafe { ffi::Py_DECREF(object.as_ptr().cast()) };
    } else {
        let deferred = PENDING.get();
        deferred.waiting.fetch_add(1, Ordering::AcqRel);
        deferred.objects().push(Reference(object));
        if ASKS_MAIN_THREAD.load(Ordering::Relaxed) {
            ask_main_thread();
        }
    }
}

/// Whether the main thread is asked to drop deferred references.
static ASKS_MAIN_THREAD: AtomicBool = AtomicBool::new(false);

/// Makes the main thread drop deferred references, once it runs Python code. Without this, the next call of the module drops them,
/// which may never come. `PyTorch` frees memory on threads that are not attached.
///
/// For a module whose memory others wait for, such as another process. It makes such a release dearer by a call of Python.
///
/// ```no_run
/// interop_core::python::drop_deferred_refs_soon(); // in the `#[pymodule_init]` of the module
/// ```
pub fn drop_deferred_refs_soon() {
    ASKS_MAIN_THREAD.store(true, Ordering::Relaxed);
}

#[cold]
fn ask_main_thread() {
    extern "C" fn drop_deferred(_: *mut c_void) -> c_int {
        Python::attach(release_deferred_refs);
        0
    }
    // SAFETY: the function has no preconditions.
    if unsafe { ffi::Py_IsInitialized() } != 0 {
        // SAFETY: any thread may call it while there is an interpreter. If its queue is full, a later call drops the references.
        unsafe { ffi::Py_AddPendingCall(Some(drop_deferred), null_mut()) };
    }
}

/// Returns an owner of memory that a Python object keeps alive. As `Owner::new(PyRef::new(object))`, without a box.
pub(crate) fn owner_of(object: &Bound<'_, PyAny>) -> Owner {
    let Some(reference) = NonNull::new(object.clone().into_ptr()) else { return Owner::none() };
    // SAFETY: `release` gets this owned reference once, and may be called on any thread.
    unsafe { Owner::from_raw(reference.cast(), release) }
}

/// The object may free memory in the context that is current.
impl Handle for PyRef {
    type Last = Self;

    fn last(self) -> Option<Self> {
        // Without the interpreter's lock, another thread may drop the other references after they were counted.
        // SAFETY: the object is alive, and the thread is attached.
        let is_last = || is_free_threaded() || unsafe { ffi::Py_REFCNT(self.0.as_ptr()) } == 1;
        (is_attached() && is_last()).then_some(self)
    }
}

/// Returns the number of Python objects whose release is deferred until a thread that is attached to the interpreter
/// drops them.
///
/// [`cuda::pending_releases`](crate::cuda::pending_releases) counts the releases that wait for work on a GPU.
#[inline]
#[must_use]
pub fn deferred_ref_count() -> usize {
    PENDING.get().waiting.load(Ordering::Acquire)
}

/// Drops the Python objects whose release other threads deferred.
///
/// Every import, every export and every method of an array class calls this.
#[inline]
pub fn release_deferred_refs(py: Python<'_>) {
    if deferred_ref_count() != 0 {
        release_deferred(py);
    }
}

#[cold]
fn release_deferred(_: Python<'_>) {
    let deferred = PENDING.get();
    let objects = core::mem::take(&mut *deferred.objects());
    for object in objects {
        deferred.waiting.fetch_sub(1, Ordering::AcqRel);
        // The drop may run any code, including code that calls this function.
        // SAFETY: the thread is attached, and this is the reference that was deferred.
        unsafe { ffi::Py_DECREF(object.0.as_ptr().cast()) };
    }
}

/// Runs a closure that may wait for a device while the thread is detached from the interpreter.
///
/// Other Python threads run meanwhile. The device work may include a host function that needs the interpreter's lock.
///
/// A detached thread cannot ask libraries whether they capture a graph. So releases are deferred and polled afterwards.
pub(crate) fn detached<R: Send>(py: Python<'_>, run: impl FnOnce() -> R + Send) -> R {
    let later = DeferRecording::new();
    let done = py.detach(run);
    drop(later);
    poll_in_passing();
    release_deferred_refs(py);
    done
}

/// A closure that stays on its thread, for `detach`. `detach` requires `Send` to keep references to Python objects out.
struct AssertSend<'a>(&'a mut dyn FnMut());

// SAFETY: the value is never sent to another thread, and the closures that are given to it use no Python objects.
unsafe impl Send for AssertSend<'_> {}

impl AssertSend<'_> {
    fn run(self) {
        (self.0)();
    }
}

/// Runs a closure for the storage of an argument, [`detached`] from the interpreter.
pub(crate) fn take_detached(take: &mut dyn FnMut()) {
    // SAFETY: an import runs on a thread that is attached.
    let py = unsafe { Python::assume_attached() };
    // A storage holds no references to Python objects, because its `take` may be called on any thread.
    let take = AssertSend(take);
    detached(py, move || take.run());
}

/// Makes this crate free its memory, and wait for work before an import, while the thread is detached. The reason is
/// that of [`detached`].
pub(crate) fn free_detached() {
    cuda::set_blocking_hook(|free| {
        if !is_attached() {
            return free();
        }
        // SAFETY: the check above found the thread attached.
        let py = unsafe { Python::assume_attached() };
        // The closure is a call of the driver. No release records its event inside that call.
        let free = AssertSend(free);
        py.detach(move || free.run());
    });
}

/// Runs a closure that may wait for work that is pending on an array. It runs [`detached`] from the interpreter
/// if there may be such work.
pub(crate) fn waiting<R: Send>(py: Python<'_>, info: &ArrayInfo, wait: impl FnOnce() -> R + Send) -> R {
    let idle = info.is_idle() || info.device() == Device::CPU;
    if idle { wait() } else { detached(py, wait) }
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

/// Creates the exception of an error here, where a panic is caught. `PyO3` aborts the process if it cannot allocate the
/// exception later.
#[cold]
pub(crate) fn raised(py: Python<'_>, error: PyErr) -> PyErr {
    error.value(py);
    error
}
