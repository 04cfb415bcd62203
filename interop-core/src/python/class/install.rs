//! Adds array classes to modules, and their methods to the classes.
#![expect(unsafe_code, reason = "methods are C functions that Python calls")]

use core::ffi::{CStr, c_int};

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::cuda;
use crate::cuda::pointer::address_for_kernels;
use crate::derive::cuda_array::CudaArray;
use crate::protocols::cai::CaiFields;
use crate::python::class::array_class::{ArrayClass, body, struct_of};
use crate::python::class::attributes::{ATTRIBUTES, Attribute, getter, methods};
use crate::python::class::exported_array::{AnyThread, ExportedArray, into_checked_object, new_object};
use crate::python::class::method::{Call, Method, method};
use crate::python::class::views;
use crate::python::detach::free_detached;
use crate::python::export::dlpack::answer;
use crate::python::export::dlpack_args::DlpackArgs;
use crate::python::export::interface_dict::dict_of;
use crate::python::py_owner::ExportedObject;
use crate::python::shared_borrows::share_borrow_table;
use pyo3::sync::PyOnceLock;

/// Adds a class of arrays to a module.
///
/// With `pyclass` a class has the methods of an array as soon as `PyO3` creates it. So `module.add_class` and
/// `#[pymodule_export]` add the same class. This function also adds the methods where `PyO3` cannot: on a platform that
/// runs no code before `main`.
///
/// The methods are:
///
/// - those of the protocols: `__dlpack__`, `__dlpack_device__` and `__cuda_array_interface__`,
/// - the C exchange table (`__dlpack_c_exchange_api__`),
/// - those that Python code expects of an array: see [the module](crate::python).
///
/// A method of the same name in your own `#[pymethods]` is kept. A class that defines `__dlpack__` gets no table,
/// because consumers would use the table instead of the method. With `INTEROP_SKIP_DLPACK_C_EXCHANGE_API=1` in the
/// environment, no class has a table, and imports use none.
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
/// mod samples {
///     use pyo3::prelude::*;
///
///     #[pymodule_init]
///     fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
///         interop_core::python::add_class::<super::Samples>(module)
///     }
/// }
/// # fn main() {}
/// ```
///
/// `PyO3` creates classes of the stable ABI of Python 3.10 without the buffer protocol, so this function adds it. It
/// uses `__buffer__` in Python 3.12 and newer, and the type's own functions in 3.10 and 3.11. In a debug build of 3.10
/// or 3.11 that traces references, the classes have only `__array__`.
///
/// # Errors
///
/// If Python cannot create the class or its methods, or cannot add the class to the module.
pub fn add_class<T: ArrayClass>(module: &Bound<'_, PyModule>) -> PyResult<()> {
    install::<T>(module.py())?;
    module.add_class::<T>()
}

/// Adds the methods of an array that the class does not define. Returns the version of this crate.
#[doc(hidden)]
pub fn install<T: ArrayClass>(py: Python<'_>) -> PyResult<&'static str> {
    install_exported(py)?;
    add_methods::<T>(py)
}

/// Adds the methods of `ExportedArray`, once. The methods of every class create objects of it.
fn install_exported(py: Python<'_>) -> PyResult<()> {
    static INSTALLED: PyOnceLock<&str> = PyOnceLock::new();
    INSTALLED.get_or_try_init(py, || add_methods::<ExportedArray>(py)).map(|_| ())
}

/// Converts a derived struct to the return value of a `#[pyfunction]`.
#[doc(hidden)]
pub fn into_object<A>(py: Python<'_>, array: A) -> PyResult<Bound<'_, PyAny>>
where
    A: CudaArray + AnyThread,
{
    install_exported(py)?;
    new_object(py, array)
}

/// As [`into_object`], for a struct whose description was checked.
pub(crate) fn checked_into_object<A>(py: Python<'_>, array: A) -> PyResult<Bound<'_, PyAny>>
where
    A: CudaArray + AnyThread,
{
    install_exported(py)?;
    into_checked_object(py, array)
}

fn add_methods<T: ArrayClass>(py: Python<'_>) -> PyResult<&'static str> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    free_detached();
    share_borrow_table(py)?;
    let class = py.get_type::<T>();
    let own = class.getattr("__dict__")?;
    let set = |name: &CStr, descriptor: Bound<'_, PyAny>| {
        let name = name.to_string_lossy();
        if own.contains(&*name)? { Ok(()) } else { class.setattr(&*name, descriptor) }
    };
    set(c"__interop_core__", PyString::new(py, VERSION).into_any())?;
    set(INTERFACE.name, getter::<T>(&class, &INTERFACE)?)?;
    // Consumers would use the table instead of the class's own method.
    if crate::python::import::exchange_table::in_use() && !own.contains("__dlpack__")? {
        set(c"__dlpack_c_exchange_api__", crate::python::class::exchange_table::capsule::<T>(py)?)?;
    }
    for attribute in &ATTRIBUTES {
        set(attribute.name, getter::<T>(&class, attribute)?)?;
    }
    // A class that defines `__getitem__` is iterated by its items, unless it is a mapping, which is not iterated by
    // index.
    let has_items = own.contains("__getitem__")?;
    let is_mapping = has_items && !is_sequence(&class);
    let (own_items, views) = (methods::<T>(), views::methods::<T>());
    let methods = protocol::<T>()
        .into_iter()
        .chain(own_items.into_iter().filter(|(name, ..)| has_items || *name != c"__iter__"));
    for (name, call, doc) in methods.chain(views).filter(|(name, ..)| !is_mapping || *name != c"__iter__") {
        set(name, method(py, class.as_type_ptr(), (name, call, doc))?)?;
    }
    crate::python::class::by_numpy::install(&class, is_mapping)?;
    crate::python::class::buffer::install::install::<T>(&class)?;
    Ok(VERSION)
}

/// Returns whether the items of a class have indices. Those of a `#[pyclass(mapping)]` have none.
fn is_sequence(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: the argument is a type.
    !unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_sq_item) }.is_null()
}

static INTERFACE: Attribute = Attribute {
    name: c"__cuda_array_interface__",
    doc: c"The CUDA Array Interface, version 3; absent for memory that CUDA cannot reach, and for element types that it has \
           no code for.",
    value: |py, info| {
        // If the interface cannot express an array, the attribute is missing, so that `hasattr` returns false.
        let absent =
            |error: crate::Error| PyAttributeError::new_err(format!("__cuda_array_interface__: {error}"));
        let fields = CaiFields::of(info).map_err(absent)?;
        let address = address_for_kernels(info.address(), info.device()).map_err(absent)?;
        let stream = cuda::stream_for_interface(info)?;
        Ok(dict_of(py, info, (address, stream), &fields)?.into_any().unbind())
    },
};

/// The methods of the `DLPack` protocol.
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
            // SAFETY: the object is alive, by the calling convention.
            let names = unsafe { Borrowed::from_ptr(py, names) };
            // SAFETY: the object is a tuple, by the calling convention.
            let names = unsafe { names.cast_unchecked::<PyTuple>() };
            for (at, name) in names.iter_borrowed().enumerate() {
                // SAFETY: there is one argument for each name.
                let argument = unsafe { arguments.wrapping_add(at).read() };
                // SAFETY: the caller holds a reference to each argument.
                let argument = unsafe { Borrowed::from_ptr(py, argument) };
                // SAFETY: the object is a string, by the calling convention.
                let name = unsafe { name.cast_unchecked::<PyString>() };
                match name.to_str() {
                    Ok(name) => request.set(name, &argument)?,
                    // A name with a lone surrogate is no keyword. The error shows it.
                    Err(_) => request.set(&name.to_string_lossy(), &argument)?,
                }
            }
        }
        let owner = ExportedObject::new(array.clone().into_any().unbind());
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
