//! Classes whose instances are arrays: the methods that the protocols name.
#![expect(unsafe_code, reason = "methods are C functions that Python calls")]

use core::ffi::{CStr, c_int};

use pyo3::PyClass;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple, PyType};

use super::attributes::{ATTRIBUTES, Attribute, getter, methods};
use super::border::guarded;
use super::dict::dict_of;
use super::export::{Request, answer};
use super::method::{Call, Method, method};
use super::recast::Instance;
use super::release::{PyOwner, drain_releases, free_without_lock};
use super::shared::share_access;
use crate::array::CudaArray;
use crate::cai::Spelled;
use crate::cuda::address_for_kernels;
use crate::descriptor::Writes;
use crate::error::Result;
use crate::facts::Facts;

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
pub(super) fn struct_of<'a, T: ArrayClass>(array: &'a Bound<'_, T>) -> &'a T {
    T::Frozen::get(array)
}

/// What `#[cuda_array(pyclass)]` makes of a struct, be it a class or not: what is missing for one is a single message then,
/// that of [`class_of_arrays`].
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

/// Compiles for classes of arrays.
#[doc(hidden)]
pub const fn class_of_arrays<T: ArrayClass>() {}

/// Gives the class the methods of the protocols, `__dlpack__`, `__dlpack_device__` and `__cuda_array_interface__`, the C
/// exchange table (`__dlpack_c_exchange_api__`), and what people expect of an array: `shape`, `ndim`, `size`, `nbytes`,
/// `strides` (bytes), `dtype`, `device`, `len()`, iteration where there is a `__getitem__`, a `repr`, `__array__` for
/// `NumPy`, `float()` and its like as `NumPy` has them, `as_device()` and `as_host()`, and for memory that the host can reach
/// the buffer protocol (`memoryview`, `bytes`, files).
///
/// Call it once, where the module is made. What has one of these names in your own `#[pymethods]` is kept; a class with
/// a `__dlpack__` of its own gets no table, by which consumers would pass it over. A pickle and `copy` are refused, unless the
/// class says how it is done, as by `__getnewargs__` or `__reduce__`. With `INTEROP_SKIP_DLPACK_C_EXCHANGE_API=1` in the
/// environment no class offers a table, and none is used.
///
/// ```no_run
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], export, pyclass)]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// #[pymodule]
/// fn samples(module: &Bound<'_, PyModule>) -> PyResult<()> {
///     module.add_class::<Samples>()?;
///     interop_core::python::install::<Samples>(module.py())
/// }
/// ```
///
/// `PyO3` makes classes of the stable ABI of Python 3.10 without the buffer protocol, so it is added here: by `__buffer__`
/// in Python 3.12 and newer, by the class's own functions in 3.10 and 3.11. Classes in a debug build of 3.10 or 3.11 that
/// traces references lack it and have `__array__`.
///
/// # Errors
///
/// When Python cannot make the methods, as for a class with `immutable_type`, which takes none.
pub fn install<T: ArrayClass>(py: Python<'_>) -> PyResult<()> {
    free_without_lock();
    share_access(py)?;
    let class = py.get_type::<T>();
    let own = class.getattr("__dict__")?;
    let set = |name: &CStr, descriptor: Bound<'_, PyAny>| {
        let name = name.to_string_lossy();
        if own.contains(&*name)? { Ok(()) } else { class.setattr(&*name, descriptor) }
    };
    set(INTERFACE.name, getter::<T>(&class, &INTERFACE)?)?;
    // By the table consumers would pass over a method of the class's own.
    if super::table::in_use() && !own.contains("__dlpack__")? {
        set(c"__dlpack_c_exchange_api__", super::table::capsule::<T>(py)?)?;
    }
    for attribute in &ATTRIBUTES {
        set(attribute.name, getter::<T>(&class, attribute)?)?;
    }
    // A class with items is iterated by them, unless it is a mapping.
    let indexed = own.contains("__getitem__")? && is_sequence(&class);
    let methods = protocol::<T>().into_iter().chain(methods::<T>());
    for (name, call, doc) in methods.filter(|(name, ..)| indexed || *name != c"__iter__") {
        set(name, method(py, class.as_type_ptr(), (name, call, doc))?)?;
    }
    super::buffer::install::<T>(&class)
}

/// Whether the items of a class have indices, of which those of a `#[pyclass(mapping)]` have none.
fn is_sequence(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: a type.
    !unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_sq_item) }.is_null()
}

static INTERFACE: Attribute = Attribute {
    name: c"__cuda_array_interface__",
    doc: c"The CUDA Array Interface, version 3; absent for memory that CUDA cannot reach, and for element types that it has \
           no code for.",
    value: |py, facts| {
        // An array that the interface cannot express does not have the attribute, so that `hasattr` says so.
        let absent =
            |error: crate::Error| PyAttributeError::new_err(format!("__cuda_array_interface__: {error}"));
        let spelled = Spelled::of(facts).map_err(absent)?;
        let address = address_for_kernels(facts.address(), facts.device()).map_err(absent)?;
        Ok(dict_of(py, facts, address, &spelled)?.into_any().unbind())
    },
};

/// The methods of `DLPack`.
fn protocol<T: ArrayClass>() -> [Method; 2] {
    [
        (
            c"__dlpack__",
            Call::Fast(dlpack::<T>),
            c"__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n\
              A DLPack capsule of the array; see the array API standard.",
        ),
        (
            c"__dlpack_device__",
            Call::Bare(dlpack_device::<T>),
            c"__dlpack_device__($self, /)\n--\n\nThe device type and the ordinal.",
        ),
    ]
}

/// Runs the body of a method: an error or a panic becomes a Python exception, and null.
///
/// # Safety
///
/// `this` is an instance of `T`, and the thread is attached.
pub(super) unsafe fn body<T: ArrayClass>(
    this: *mut ffi::PyObject,
    run: impl FnOnce(&Bound<'_, T>) -> PyResult<Py<PyAny>>,
) -> *mut ffi::PyObject {
    let run = |py: Python<'_>| {
        drain_releases(py);
        // SAFETY: a live object, to which Python holds a reference during the call.
        let this = unsafe { Borrowed::from_ptr(py, this) };
        // SAFETY: of this class, as the caller promises.
        let this = unsafe { this.cast_unchecked::<T>() };
        run(&this)
    };
    // SAFETY: the thread is attached, as the caller promises.
    unsafe { guarded(run) }.map_or(core::ptr::null_mut(), Py::into_ptr)
}

/// # Safety
///
/// Called by Python as a method of `T` with these flags.
unsafe extern "C" fn dlpack<T: ArrayClass>(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let py = array.py();
        if positional != 0 {
            let text = format!("__dlpack__() takes no positional arguments, {positional} given");
            return Err(PyTypeError::new_err(text));
        }
        let mut request = Request::default();
        if !names.is_null() {
            // SAFETY: live, by the calling convention.
            let names = unsafe { Borrowed::from_ptr(py, names) };
            // SAFETY: a tuple, likewise.
            let names = unsafe { names.cast_unchecked::<PyTuple>() };
            for (at, name) in names.iter_borrowed().enumerate() {
                // SAFETY: there is one argument for each name.
                let argument = unsafe { arguments.wrapping_add(at).read() };
                // SAFETY: the caller holds a reference to each argument.
                let argument = unsafe { Borrowed::from_ptr(py, argument) };
                // SAFETY: a string, by the calling convention.
                let name = unsafe { name.cast_unchecked::<PyString>() };
                request.set_interned(&name, &argument)?;
            }
        }
        let owner = PyOwner::new(array.clone().into_any().unbind());
        // SAFETY: the object keeps the array alive, and its class is frozen.
        Ok(unsafe { answer(py, struct_of(array), owner, &request) }?.unbind())
    };
    // SAFETY: as the caller promises; `Borrowed` is `Copy` and keeps nothing.
    unsafe { body::<T>(this, run) }
}

/// # Safety
///
/// Called by Python as a method of `T` without arguments.
unsafe extern "C" fn dlpack_device<T: ArrayClass>(
    this: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let run = |array: &Bound<'_, T>| {
        let device = struct_of(array).facts()?.device();
        let pair: [c_int; 2] = [device.device_type.0, device.device_id];
        Ok(PyTuple::new(array.py(), pair)?.into_any().unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
}

/// An array that a function returned, for NumPy and other libraries to use in place, as by `numpy.from_dlpack(array)`.
///
/// It speaks DLPack and, for memory that CUDA can reach, the CUDA Array Interface.
// What a `#[cuda_array(python)]` struct becomes.
#[pyclass(frozen, weakref, module = "interop_core")]
pub(super) struct ExportedArray {
    array: Box<dyn Described>,
}

#[pymethods]
impl ExportedArray {
    /// For the collector of garbage: an object that keeps a memoryview of itself would never go.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.array.visit(&visit)
    }
}

/// The part of [`CudaArray`] that needs no type parameter.
trait Described: Send + Sync {
    fn describe(&self) -> Result<Facts>;

    /// Shows the collector the Python objects that the array keeps, as far as it can tell.
    fn visit(&self, _: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Ok(())
    }
}

/// A struct of somebody's, of which is not known what it keeps.
struct Returned<A>(A);

impl<A: CudaArray + Send + Sync> Described for Returned<A> {
    fn describe(&self) -> Result<Facts> {
        self.0.facts()
    }
}

impl<T: ArrayClass> Described for Instance<T> {
    fn describe(&self) -> Result<Facts> {
        self.facts()
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

// SAFETY: 1 and 2: as the struct inside. 3: nothing else has the struct, and so no reference to what it lends.
unsafe impl CudaArray for ExportedArray {
    /// The facts of the struct inside; what its sole owner may write, everybody may write who has the object.
    fn facts(&self) -> Result<Facts> {
        let facts = self.array.describe()?;
        let writes = if facts.is_writable_by_owner() { Writes::Always } else { Writes::Never };
        Ok(Facts { writes, ..facts })
    }
}

impl ArrayMethods for ExportedArray {}

/// A struct that Python may use and release on whatever thread it likes. One trait for all that this takes, so that what is
/// missing is one message.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a Python object, which every thread may use and release",
    label = "not `Send`, or not `Sync`",
    note = "each field is to be both; of a raw pointer write `unsafe impl Send` and `unsafe impl Sync` for the struct, and vouch \
            for it"
)]
pub trait AnyThread: Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Send + Sync + 'static> AnyThread for T {}

/// A derived struct as the return value of a `#[pyfunction]`.
#[doc(hidden)]
pub fn into_object<A>(py: Python<'_>, array: A) -> PyResult<Bound<'_, PyAny>>
where
    A: CudaArray + AnyThread,
{
    // A struct whose fields contradict each other is refused here, where it can be seen who made it.
    array.facts()?;
    exported(py, Box::new(Returned(array)))
}

/// The array of an object as an object of its own.
pub(super) fn of_instance<T: ArrayClass>(py: Python<'_>, array: Instance<T>) -> PyResult<Bound<'_, PyAny>> {
    exported(py, Box::new(array))
}

fn exported(py: Python<'_>, array: Box<dyn Described>) -> PyResult<Bound<'_, PyAny>> {
    static INSTALLED: PyOnceLock<()> = PyOnceLock::new();
    INSTALLED.get_or_try_init(py, || install::<ExportedArray>(py))?;
    Ok(Bound::new(py, ExportedArray { array })?.into_any())
}

/// What a class has of its own stays as it is, be it a slot, a getter or a method of a protocol.
/// Run as a test.
///
/// ```
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::ffi::c_str;
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], export, pyclass)]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// #[pymethods]
/// impl Samples {
///     #[getter]
///     fn shape(&self) -> &str { "own" }
///     fn __len__(&self) -> usize { 7 }
///     fn __repr__(&self) -> &str { "own" }
///     fn __dlpack_device__(&self) -> (i32, i32) { (1, 5) }
/// }
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     interop_core::python::install::<Samples>(py)?;
///     let samples = Bound::new(py, Samples { values: HostVec::from_slice(&[1.0_f32, 2.0]), len: 2 })?;
///     let own = pyo3::types::PyDict::new(py);
///     own.set_item("samples", samples)?;
///     let says = |code| py.eval(code, Some(&own), None)?.extract::<bool>();
///     assert!(says(c_str!("samples.shape == repr(samples) == str(samples) == 'own'"))?);
///     assert!(says(c_str!("len(samples) == 7 and samples.__dlpack_device__() == (1, 5)"))?);
///     assert!(says(c_str!("(samples.nbytes, samples.ndim) == (8, 1) and 'dltensor' in repr(samples.__dlpack__())"))?);
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct OwnMethods;
