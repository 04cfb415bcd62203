//! Which Python exception an error is.

use pyo3::exceptions::{
    PyBufferError, PyException, PyIndexError, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCFunction, PyCapsule, PyDict, PyList, PyMemoryView, PyString, PyTuple, PyType};

use crate::error::{Error, ErrorKind, Refused};
use crate::python::interpreter::with_attached;

static ARRAY_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

static STREAM_ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception class of refused arrays, `interop_core.ArrayError`: a `BufferError` and a `ValueError`.
///
/// The standards ask for `BufferError` where an array cannot be expressed, for `ValueError` elsewhere, and for both in
/// one place (`copy=False` when a copy is needed); whoever catches either catches this. A stream that `__dlpack__` cannot
/// serve raises its subclass, [`stream_error_type`]. Values of the wrong type raise `TypeError`, an index outside the array
/// `IndexError`, and memory that cannot be had `MemoryError`.
///
/// A module that offers the classes gives them its name, so that a traceback says where it is, and another process can import
/// it; where none does, it travels there as a `BufferError`:
///
/// ```no_run
/// use interop_core::python::{array_error_type, stream_error_type};
/// use pyo3::prelude::*;
///
/// #[pymodule]
/// fn samples(module: &Bound<'_, PyModule>) -> PyResult<()> {
///     for class in [array_error_type(module.py())?, stream_error_type(module.py())?] {
///         class.setattr("__module__", module.name()?)?;
///         module.add(class.name()?, class)?;
///     }
///     Ok(())
/// }
/// ```
///
/// # Errors
///
/// When Python cannot make the class.
pub fn array_error_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = ARRAY_ERROR.get_or_try_init(py, || {
        let bases = [py.get_type::<PyBufferError>(), py.get_type::<PyValueError>()];
        new_class(py, "ArrayError", bases, "An array that cannot be exported or imported, and why.")
    })?;
    Ok(class.bind(py))
}

/// The exception class of streams that `__dlpack__` cannot serve, `interop_core.StreamError`: an [`array_error_type`] and a
/// `RuntimeError`, which is what `NumPy`'s arrays raise there.
///
/// # Errors
///
/// When Python cannot make the class.
pub fn stream_error_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = STREAM_ERROR.get_or_try_init(py, || {
        let bases = [array_error_type(py)?.clone(), py.get_type::<PyRuntimeError>()];
        new_class(py, "StreamError", bases, "A stream that the memory of an array does not have.")
    })?;
    Ok(class.bind(py))
}

/// The exception about a stream that `__dlpack__` was told.
#[cold]
pub(crate) fn no_such_stream(py: Python<'_>, error: Error) -> PyErr {
    match stream_error_type(py) {
        Ok(class) => PyErr::from_type(class.clone(), error.into_python_message()),
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

/// How another process is told of an exception, such as by a pool of workers: by the first of its classes that is where
/// its name says. A class that no module offers is not, and an exception that cannot be told takes its text with it.
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
        let (kind, text) = (error.kind(), error.into_python_message());
        with_attached(|py| match kind {
            ErrorKind::Type => PyTypeError::new_err(text),
            // What ends a loop over an object with `__getitem__`.
            ErrorKind::IndexOutOfBounds => PyIndexError::new_err(text),
            ErrorKind::OutOfMemory => PyMemoryError::new_err(text),
            _ => match array_error_type(py) {
                Ok(class) => Self::from_type(class.clone(), text),
                Err(failure) => failure,
            },
        })
    }
}

impl<T> From<Refused<T>> for PyErr {
    fn from(refused: Refused<T>) -> Self {
        refused.error.into()
    }
}

/// Why something of Python's could not be read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It is not what it should be.
    Invalid(Error),
    /// Code that it ran raised.
    Raised(PyErr),
}

impl Failure {
    /// The exception; what we found wrong comes with the class of the object that it was of.
    #[cold]
    pub(crate) fn of(self, object: &Bound<'_, PyAny>) -> PyErr {
        match self {
            Self::Invalid(error) => of(object, error).into(),
            Self::Raised(error) => error,
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
        Self::Raised(error)
    }
}

impl From<Failure> for PyErr {
    fn from(fault: Failure) -> Self {
        match fault {
            Failure::Invalid(error) => error.into(),
            Failure::Raised(error) => error,
        }
    }
}

/// The name of an object's class, for messages; never raises.
pub(crate) fn origin(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().fully_qualified_name();
    name.map_or_else(|_| "an object of unknown class".into(), |name| name.to_string())
}

/// As [`origin`]; of a tuple, of which another length was expected, with its length.
#[cold]
pub(crate) fn with_length(object: &Bound<'_, PyAny>) -> String {
    let name = origin(object);
    match object.cast::<PyTuple>() {
        Ok(tuple) => format!("{name} of length {}", tuple.len()),
        Err(_) => name,
    }
}

/// An error about an array, with the class of the object that it came from.
#[cold]
pub(crate) fn of(object: &Bound<'_, PyAny>, error: Error) -> Error {
    error.with_origin(origin(object))
}

/// The error about an object that speaks no protocol.
#[cold]
pub(crate) fn not_an_array(object: &Bound<'_, PyAny>) -> PyErr {
    let (found, allowed) = (origin(object), "an object with `__dlpack__` or `__cuda_array_interface__`");
    let hint = if object.is_instance_of::<PyCapsule>() {
        "; pass the array itself, which makes its capsules"
    } else if object.is_instance_of::<PyBytes>() {
        "; convert it by `numpy.frombuffer`"
    } else if holds_elements(object) {
        // Compiled classes of other libraries too, which the next question takes for Rust's.
        "; convert it by `numpy.asarray`"
    } else if is_compiled(&object.get_type()) {
        "; a Rust class has them by `#[cuda_array(pyclass)]`"
    } else {
        ""
    };
    let error = PyTypeError::new_err(format!("`array`: found {found}, allowed: {allowed}{hint}"));
    match withheld(object) {
        Some(interrupt) if !interrupt.is_instance_of::<PyException>(object.py()) => interrupt,
        why => {
            error.set_cause(object.py(), why);
            error
        }
    }
}

/// Why a property that is there has nothing to give, as its error says it.
fn withheld(object: &Bound<'_, PyAny>) -> Option<PyErr> {
    let class = object.get_type();
    let asked = |name: &str| object.getattr(name).err();
    let named = |name: &&str| class.hasattr(name).unwrap_or(false);
    ["__dlpack__", "__cuda_array_interface__"].into_iter().filter(named).find_map(asked)
}

/// Whether `NumPy` makes an array of the elements that the object holds: it is a list, says so itself, as scalars of
/// `NumPy`, series and pictures do, or lends its memory by the buffer protocol.
fn holds_elements(object: &Bound<'_, PyAny>) -> bool {
    let class = object.get_type();
    let says_so = |name: &str| class.hasattr(name).unwrap_or(false);
    object.is_instance_of::<PyList>()
        || object.is_instance_of::<PyTuple>()
        || says_so("__array__")
        || says_so("__array_interface__")
        || PyMemoryView::from(object).is_ok()
}

/// Whether a class may be one of `PyO3`'s, as far as can be seen; nothing in a class tells that Rust made it. It was made
/// at run time and can be changed, by the usual metaclass, and not by a `class` statement, which gives instances a dict or
/// slots.
fn is_compiled(class: &Bound<'_, PyType>) -> bool {
    /// `Py_TPFLAGS_HEAPTYPE`: made at run time.
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
