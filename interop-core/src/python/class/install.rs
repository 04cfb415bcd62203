//! Classes whose instances are arrays: the methods that the protocols name.
#![expect(unsafe_code, reason = "methods are C functions that Python calls")]

use core::ffi::{CStr, c_int};

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::cuda::pointer::address_for_kernels;
use crate::derive::cuda_array::CudaArray;
use crate::protocols::cai::CaiFields;
use crate::python::class::array_class::{ArrayClass, body, struct_of};
use crate::python::class::attributes::{ATTRIBUTES, Attribute, getter, methods};
use crate::python::class::exported_array::{AnyThread, ExportedArray, new_object};
use crate::python::class::method::{Call, Method, method};
use crate::python::detach::free_detached;
use crate::python::export::dlpack::answer;
use crate::python::export::interface_dict::dict_of;
use crate::python::export::request::DlpackArgs;
use crate::python::py_owner::PyOwner;
use crate::python::shared_borrows::share_borrow_table;
use pyo3::sync::PyOnceLock;

/// Gives the class the methods of the protocols, `__dlpack__`, `__dlpack_device__` and `__cuda_array_interface__`, the C
/// exchange table (`__dlpack_c_exchange_api__`), and what people expect of an array: `shape`, `ndim`, `size`, `nbytes`,
/// `strides` (bytes), `dtype`, `device`, `len()`, iteration where there is a `__getitem__`, a `repr`, `__array__` for
/// `NumPy`, `float()` and its like as `NumPy` has them, `relabel_as_device()` and `relabel_as_host()`, and for memory that the host can reach
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
    install_exported(py)?;
    add_methods::<T>(py)
}

/// Gives `ExportedArray` its methods, once.
fn install_exported(py: Python<'_>) -> PyResult<()> {
    static INSTALLED: PyOnceLock<()> = PyOnceLock::new();
    INSTALLED.get_or_try_init(py, || add_methods::<ExportedArray>(py)).copied()
}

/// A derived struct as the return value of a `#[pyfunction]`.
#[doc(hidden)]
pub fn into_object<A>(py: Python<'_>, array: A) -> PyResult<Bound<'_, PyAny>>
where
    A: CudaArray + AnyThread,
{
    install_exported(py)?;
    new_object(py, array)
}

fn add_methods<T: ArrayClass>(py: Python<'_>) -> PyResult<()> {
    free_detached();
    share_borrow_table(py)?;
    let class = py.get_type::<T>();
    let own = class.getattr("__dict__")?;
    let set = |name: &CStr, descriptor: Bound<'_, PyAny>| {
        let name = name.to_string_lossy();
        if own.contains(&*name)? { Ok(()) } else { class.setattr(&*name, descriptor) }
    };
    set(INTERFACE.name, getter::<T>(&class, &INTERFACE)?)?;
    // By the table consumers would pass over a method of the class's own.
    if crate::python::import::exchange_table::in_use() && !own.contains("__dlpack__")? {
        set(c"__dlpack_c_exchange_api__", crate::python::class::exchange_table::capsule::<T>(py)?)?;
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
    crate::python::class::buffer::install::install::<T>(&class)
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
    value: |py, info| {
        // An array that the interface cannot express does not have the attribute, so that `hasattr` says so.
        let absent =
            |error: crate::Error| PyAttributeError::new_err(format!("__cuda_array_interface__: {error}"));
        let fields = CaiFields::of(info).map_err(absent)?;
        let address = address_for_kernels(info.address(), info.device()).map_err(absent)?;
        Ok(dict_of(py, info, address, &fields)?.into_any().unbind())
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
        let mut request = DlpackArgs::default();
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
        let device = struct_of(array).info()?.device();
        let pair: [c_int; 2] = [device.device_type.0, device.device_id];
        Ok(PyTuple::new(array.py(), pair)?.into_any().unbind())
    };
    // SAFETY: as the caller promises.
    unsafe { body::<T>(this, run) }
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
