//! The Python exceptions for the errors of this crate.

use core::iter::successors;
use std::borrow::Cow;

use pyo3::exceptions::{
    PyBufferError, PyIndexError, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyCapsule, PyDict, PyList, PyString, PyTuple, PyType};

use crate::error::{Cure, Error, ErrorKind, Origin, Refused};
use crate::python::import::package::{Package, class_names};
use crate::python::interpreter::{ignore_exception, is_ordinary, truth_of, with_attached};

/// Returns the exception class for arrays that cannot be imported or exported: `interop_core.ArrayError`.
///
/// It derives from `BufferError` and `ValueError`. The protocols require `BufferError` if an array cannot be expressed,
/// `ValueError` in other cases, and both in one case (`copy=False` if a copy is needed). Code that catches either of
/// them catches this class. A stream that `__dlpack__` cannot use raises the subclass [`stream_error_type`]. Values of
/// the wrong type raise `TypeError`, an index out of bounds raises `IndexError`, and a failed allocation raises
/// `MemoryError`.
///
/// [`ArrayErrorClass`] adds it to a module.
///
/// # Errors
///
/// If Python cannot create the class.
pub fn array_error_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    Ok(classes(py)?[0].bind(py))
}

/// Returns the exception class for streams that `__dlpack__` cannot use: `interop_core.StreamError`.
///
/// It derives from [`array_error_type`] and `RuntimeError`, which `NumPy` raises in this case.
///
/// # Errors
///
/// If Python cannot create the class.
pub fn stream_error_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    Ok(classes(py)?[1].bind(py))
}

/// Defines a constant of a module whose value is an exception class.
macro_rules! class_constant {
    ($(#[$documentation:meta])* $name:ident, $hint:ident, $class:path) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl<'py> IntoPyObject<'py> for $name {
            type Target = PyType;
            type Output = Bound<'py, PyType>;
            type Error = PyErr;
            crate::__python_hint! { OUTPUT_TYPE $hint }

            fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
                Ok($class(py)?.clone())
            }
        }
    };
}

class_constant! {
    /// [`array_error_type`] as a constant of a module, so that `maturin generate-stubs` sees it:
    ///
    /// ```no_run
    /// use pyo3::prelude::*;
    ///
    /// #[pymodule]
    /// #[expect(non_upper_case_globals)]
    /// mod samples {
    ///     use interop_core::python::{ArrayErrorClass, StreamErrorClass};
    ///
    ///     #[pymodule_export]
    ///     const ArrayError: ArrayErrorClass = ArrayErrorClass;
    ///     #[pymodule_export]
    ///     const StreamError: StreamErrorClass = StreamErrorClass;
    /// }
    /// ```
    ///
    /// A module that is a function adds the class itself, `module.add("ArrayError", ArrayErrorClass)?`. Its `__module__` is
    /// `interop_core`, which no process can import: without `class.setattr("__module__", …)`, the exception is unpickled in
    /// another process as a `BufferError`.
    ArrayErrorClass, ARRAY_ERROR, array_error_type
}
class_constant! {
    /// [`stream_error_type`] as a constant of a module. See [`ArrayErrorClass`].
    StreamErrorClass, STREAM_ERROR, stream_error_type
}

/// Returns `ArrayError` and `StreamError`.
fn classes(py: Python<'_>) -> PyResult<&[Py<PyType>; 2]> {
    static CLASSES: PyOnceLock<[Py<PyType>; 2]> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let bases = [py.get_type::<PyBufferError>(), py.get_type::<PyValueError>()];
        let doc = "An array that cannot be exported or imported, and why.";
        let array_error = new_class(py, "ArrayError", bases, doc)?;
        let bases = [array_error.bind(py).clone(), py.get_type::<PyRuntimeError>()];
        let doc = "A stream that the memory of an array does not have.";
        let stream_error = new_class(py, "StreamError", bases, doc)?;
        Ok([array_error, stream_error])
    })
}

/// Returns the exception for an invalid `stream` argument of `__dlpack__`.
#[cold]
pub(crate) fn no_such_stream(py: Python<'_>, error: Error) -> PyErr {
    match stream_error_type(py) {
        Ok(class) => PyErr::from_type(class.clone(), error.into_python_message(in_words)),
        Err(failure) => failure,
    }
}

fn new_class(py: Python<'_>, name: &str, bases: [Bound<'_, PyType>; 2], doc: &str) -> PyResult<Py<PyType>> {
    let namespace = PyDict::new(py);
    namespace.set_item("__module__", "interop_core")?;
    namespace.set_item("__doc__", doc)?;
    let class = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, namespace))?;
    let reduce = PyCFunction::new_closure(py, None, None, |arguments, _| reduced(&arguments.get_item(0)?))?;
    py.import("copyreg")?.call_method1("pickle", (&class, reduce))?;
    Ok(class.cast_into::<PyType>()?.unbind())
}

/// Pickles an exception as the first of its base classes that can be imported under its name.
///
/// A class that no module exposes cannot be imported. An exception that cannot be unpickled keeps only its text.
fn reduced(error: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let modules = error.py().import("sys")?.getattr("modules")?;
    let at_its_name = |class: &Bound<'_, PyAny>| {
        let module = modules.get_item(class.getattr("__module__")?)?;
        Ok::<_, PyErr>(module.getattr(class.getattr("__name__")?.cast::<PyString>()?)?.is(class))
    };
    let classes = error.get_type().mro();
    let class = classes.iter().find(|class| at_its_name(class).unwrap_or(false));
    let parts = (class, error.getattr("args")?, error.getattr("__dict__")?);
    Ok(parts.into_pyobject(error.py())?.into_any().unbind())
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let (kind, text) = (error.kind(), error.into_python_message(in_words));
        let of_class = |text: String| {
            with_attached(|py| match array_error_type(py) {
                Ok(class) => Self::from_type(class.clone(), text),
                Err(failure) => failure,
            })
        };
        match kind {
            ErrorKind::Type => PyTypeError::new_err(text),
            // `IndexError` ends iteration over an object with `__getitem__`.
            ErrorKind::IndexOutOfBounds => PyIndexError::new_err(text),
            ErrorKind::OutOfMemory => PyMemoryError::new_err(text),
            // Without an interpreter nobody sees the class.
            _ => of_class(text.clone()).unwrap_or_else(|| PyBufferError::new_err(text)),
        }
    }
}

impl<T> From<Refused<T>> for PyErr {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

/// The reason why a Python object could not be read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The object is not valid.
    Invalid(Error),
    /// Python code that was called raised an exception.
    Raised(Box<PyErr>),
}

impl Failure {
    /// Converts to an exception. If the object is not valid, the message names its class.
    #[cold]
    pub(crate) fn with_origin(self, object: &Bound<'_, PyAny>) -> PyErr {
        match self {
            Self::Invalid(error) => with_origin(object, error).into(),
            Self::Raised(error) => *error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Invalid(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Raised(Box::new(error))
    }
}

impl From<Failure> for PyErr {
    fn from(fault: Failure) -> Self {
        match fault {
            Failure::Invalid(error) => error.into(),
            Failure::Raised(error) => *error,
        }
    }
}

/// Why a protocol has not filled a slot.
pub(crate) enum Unread {
    /// The object does not support it, or not for this array. The next protocol follows.
    Absent,
    /// It cannot express the array, for this reason. The next protocol follows, and may know more.
    Refused(Box<PyErr>),
    /// The import fails.
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Unread {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The name of the object's class, for messages. Never raises.
pub(crate) fn origin(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().fully_qualified_name();
    name.map_or_else(|_| "an object of unknown class".into(), |name| name.to_string())
}

/// The class and the library of an object. Never raises.
#[cold]
pub(crate) fn origin_of(object: &Bound<'_, PyAny>) -> Origin {
    let library = Package::from_class(&object.get_type()).map_or("", Package::name);
    Origin { text: origin(object), library }
}

/// As [`origin`], with the length if the object is a tuple. For errors about a tuple's length.
#[cold]
pub(crate) fn with_length(object: &Bound<'_, PyAny>) -> String {
    let name = origin(object);
    match object.cast::<PyTuple>() {
        Ok(tuple) => format!("{name} of length {}", tuple.len()),
        Err(_) => name,
    }
}

/// Adds the class of the object to an error about its array, and its library for the advice.
#[cold]
pub(crate) fn with_origin(object: &Bound<'_, PyAny>, error: Error) -> Error {
    error.with_object(&origin_of(object))
}

/// Makes an earlier exception the cause of one that has none.
pub(crate) fn set_first_cause(py: Python<'_>, error: &PyErr, first: PyErr) {
    /// The chain of causes may be circular.
    const MOST_CAUSES: usize = 64;
    // Foreign code may raise the same exception object again. An exception must not become its own cause, directly or
    // indirectly.
    let mut causes = successors(Some(first.clone_ref(py)), |error| error.cause(py)).take(MOST_CAUSES);
    if error.cause(py).is_none() && !causes.any(|cause| cause.value(py).is(error.value(py))) {
        error.set_cause(py, Some(first));
    }
}

/// Returns the error for an object that supports none of the protocols.
#[cold]
pub(crate) fn not_an_array(object: &Bound<'_, PyAny>) -> PyErr {
    describe_refusal(object).unwrap_or_else(|interrupt| interrupt)
}

/// # Errors
///
/// Exceptions of the class that are not [ordinary](is_ordinary).
fn describe_refusal(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let (py, found, class) = (object.py(), origin(object), object.get_type());
    let allowed = "an object with `__dlpack__`, `__cuda_array_interface__` or a buffer";
    let has = |name: &str| Ok::<_, PyErr>(ignore_exception(py, class.hasattr(name))?.unwrap_or(false));
    // `NumPy` converts lists, tuples, and objects that support its protocols (series, images).
    let holds_elements = object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || has("__array__")?
        || has("__array_interface__")?;
    let hint = if object.is_instance_of::<PyCapsule>() {
        "; pass the array instead of its capsule"
    } else if holds_elements {
        // Checked first, because `is_compiled` is also true for compiled classes of other libraries.
        "; convert it by `numpy.asarray`"
    } else if is_compiled(&class) {
        "; for a Rust class, add `#[cuda_array(pyclass)]`"
    } else {
        ""
    };
    let error = PyTypeError::new_err(format!("`array`: found {found}, allowed: {allowed}{hint}"));
    // The exception that a protocol attribute of the class raises when it is read.
    for name in ["__dlpack__", "__cuda_array_interface__"] {
        match if has(name)? { object.getattr(name).err() } else { None } {
            Some(interrupt) if !is_ordinary(py, &interrupt) => return Err(interrupt),
            Some(why) => {
                error.set_cause(py, Some(why));
                break;
            }
            None => {}
        }
    }
    Ok(error)
}

/// Returns whether the class may be a `PyO3` class. No attribute states that Rust created a class.
///
/// A `PyO3` class is a mutable heap type whose metaclass is `type`. It was not created by a `class` statement, which
/// gives the instances a dict or slots.
fn is_compiled(class: &Bound<'_, PyType>) -> bool {
    /// `Py_TPFLAGS_HEAPTYPE`: created at run time.
    const HEAP: u64 = 1 << 9;
    /// `Py_TPFLAGS_IMMUTABLETYPE`.
    const IMMUTABLE: u64 = 1 << 8;
    let number = |name: &str| class.getattr(name).and_then(|number| number.extract::<u64>());
    let has_slots = class.getattr("__dict__").and_then(|own| own.contains("__slots__"));
    class.get_type().is(class.py().get_type::<PyType>())
        && number("__flags__").is_ok_and(|flags| flags & (HEAP | IMMUTABLE) == HEAP)
        && number("__dictoffset__").is_ok_and(|offset| offset == 0)
        && has_slots.is_ok_and(|has_slots| !has_slots)
}

/// Returns the advice for an array of a library. `x` is the array.
#[cold]
pub(crate) fn in_words(cure: &Cure, library: &str) -> Cow<'static, str> {
    let words = match (cure, library) {
        (Cure::Say(words), _) => words,
        (Cure::Convert(dtype), "PyTorch") => return format!("call `x.to(torch.{dtype})`").into(),
        (Cure::Convert(dtype), "NumPy" | "CuPy" | "JAX") => {
            return format!("call `x.astype(\"{dtype}\")`").into();
        }
        (Cure::Convert(_), _) => "convert it, such as by `astype` of its library",
        (Cure::COrder, "PyTorch") => "call `x.contiguous()`, whose result is another tensor",
        (Cure::COrder, "NumPy" | "JAX") => "call `numpy.ascontiguousarray(x)`, whose result is another array",
        (Cure::COrder, "CuPy") => "call `cupy.ascontiguousarray(x)`, whose result is another array",
        (Cure::COrder, _) => "use `ascontiguousarray` of its library, whose result is another array",
        (Cure::FOrder, "PyTorch") => {
            "reverse its axes before and after `contiguous()`, such as `x.mT.contiguous().mT` for a matrix"
        }
        (Cure::FOrder, "NumPy" | "JAX") => "call `numpy.asfortranarray(x)`, whose result is another array",
        (Cure::FOrder, "CuPy") => "call `cupy.asfortranarray(x)`, whose result is another array",
        (Cure::FOrder, _) => "use `asfortranarray` of its library, whose result is another array",
        (Cure::Copy, "PyTorch") => "pass a copy, `x.clone()`; the original then stays as it is",
        (Cure::Copy, "NumPy" | "CuPy") => "pass a copy, `x.copy()`; the original then stays as it is",
        (Cure::Copy, _) => "pass a copy, such as by `numpy.array`; the original then stays as it is",
        (Cure::ToHost, "PyTorch") => "copy it to the host by `x.cpu()`",
        (Cure::ToHost, "CuPy") => "copy it to the host by `cupy.asnumpy(x)`",
        (Cure::ToHost, "JAX") => "copy it to the host by `numpy.asarray(x)`",
        (Cure::ToHost, _) => {
            "copy it to the host, such as by PyTorch's `x.cpu()` or CuPy's `cupy.asnumpy(x)`"
        }
        (Cure::ToDevice, "PyTorch") => "copy it to a device by `x.cuda()`",
        (Cure::ToDevice, "NumPy") => "copy it to a device, such as by CuPy's `cupy.asarray(x)`",
        (Cure::ToDevice, "JAX") => "copy it to a device by `jax.device_put(x, jax.devices(\"gpu\")[0])`",
        (Cure::ToDevice, _) => {
            "copy it to a device, such as by PyTorch's `x.cuda()` or CuPy's `cupy.asarray(x)`"
        }
    };
    (*words).into()
}

/// Explains an exception of an object that has no memory: a class in place of its object, a value that JAX traces, or an array that
/// JAX has deleted. Returns other exceptions as they are.
#[cold]
pub(crate) fn explain_missing(object: &Bound<'_, PyAny>, raised: PyErr) -> PyErr {
    let py = object.py();
    if !is_ordinary(py, &raised) {
        return raised;
    }
    let names = class_names(&object.get_type()).unwrap_or_default();
    let of_jax = |name: &str| names.iter().any(|class| class.package == "jax" && class.name == name);
    let is_jax = || matches!(Package::from_class(&object.get_type()), Ok(Package::Jax));
    let is_deleted =
        || truth_of(object, intern!(py, "is_deleted")).is_ok_and(|deleted| deleted == Some(true));
    let (found, allowed) = if let Ok(class) = object.cast::<PyType>() {
        let name =
            class.fully_qualified_name().map_or_else(|_| "an unknown class".into(), |name| name.to_string());
        (format!("the class {name}"), "an object of it")
    } else if of_jax("Tracer") {
        let allowed = "an array with values: `jax.jit`, `jax.grad` and `jax.vmap` pass none to what they trace; call it through \
                       `jax.pure_callback`";
        (origin(object), allowed)
    } else if is_jax() && is_deleted() {
        ("an array that JAX has deleted".into(), "one that was neither deleted nor donated to a function")
    } else {
        return raised;
    };
    let error = PyTypeError::new_err(format!("`array`: found {found}, allowed: {allowed}"));
    error.set_cause(py, Some(raised));
    error
}
