//! The library of a Python object: how it creates an array from a tensor, and how it waits for a stream.

use std::sync::Arc;

use pyo3::exceptions::PyImportError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::cuda;
use crate::python::detach::detached;
use crate::python::errors::of;
use crate::python::import::exchange_table::{Table, makes_objects};
use crate::python::import::interface_dict::extract_cai;
use crate::python::import::package::{Kind, Package, packages_of};
use crate::python::import::type_cache::{offered, type_info};
use crate::python::interpreter::{attribute, ignore_exception, imported};

impl Kind {
    /// Returns the library of an object. Determined once per type.
    ///
    /// # Errors
    ///
    /// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. Any other exception of the class is
    /// ignored.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (py, known) = (object.py(), type_info(object)?);
        if let Some(kind) = known.kind.get(py) {
            return Ok(kind.clone());
        }
        // Outside of the cell, because lookups can run Python code, which may come back here. The first result is kept.
        let kind = Self::find(object, known.package, known.exchange)?;
        // An entry of the cache must not keep a class alive, as it would be forgotten only after that class. Modules
        // stay anyway.
        let is_freed =
            matches!(&kind, Self::FromDlpack(makes) if !makes.bind(py).is_instance_of::<PyModule>());
        if !is_freed {
            let _ = known.kind.set(py, kind.clone());
        }
        Ok(kind)
    }

    fn find(object: &Bound<'_, PyAny>, package: Package, exchange: Option<Table>) -> PyResult<Self> {
        let class = object.get_type();
        let exchange = exchange.filter(|table| makes_objects(*table));
        match package {
            Package::NumPy => return Ok(Self::NumPy),
            Package::PyTorch => return Ok(Self::PyTorch(exchange)),
            Package::CuPy => return Ok(Self::CuPy),
            Package::Jax => return Ok(Self::Jax),
            _ => {}
        }
        if let Some(table) = exchange {
            return Ok(Self::Table(table));
        }
        let makes = with_from_dlpack(class.as_any())?;
        let makes = if makes.is_some() { makes } else { namespace_of(object)? };
        let makes = if makes.is_some() {
            makes
        } else {
            package_with_from_dlpack(object.py(), &packages_of(&class)?)?
        };
        Ok(makes.map_or(Self::Neutral, |makes| Self::FromDlpack(Arc::new(makes.unbind()))))
    }

    /// Returns the kind for `PyTorch`, without an object of it.
    ///
    /// # Errors
    ///
    /// `ImportError` if it is not installed.
    pub(crate) fn pytorch(py: Python<'_>) -> PyResult<Self> {
        /// The class `Tensor` at the first call, with its table.
        static TENSOR: PyOnceLock<(Py<PyAny>, Option<Table>)> = PyOnceLock::new();
        let class = library(py, Library::PyTorch)?.getattr(intern!(py, "Tensor"))?;
        let table = |class: &Bound<'_, PyAny>| -> PyResult<_> {
            let table = class.cast::<PyType>().ok().map(offered).transpose()?.flatten();
            Ok(table.filter(|table| makes_objects(*table)))
        };
        if let Some((_, found)) = TENSOR.get(py).filter(|(known, _)| known.is(&class)) {
            return Ok(Self::PyTorch(*found));
        }
        let found = table(&class)?;
        let _ = TENSOR.set(py, (class.unbind(), found));
        Ok(Self::PyTorch(found))
    }
}

/// A library that can be named as the type of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    NumPy,
    PyTorch,
    CuPy,
    Jax,
}

impl Library {
    /// The name of the library, and the module with its functions.
    pub(crate) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::NumPy => ("NumPy", "numpy"),
            Self::PyTorch => ("PyTorch", "torch"),
            Self::CuPy => ("CuPy", "cupy"),
            Self::Jax => ("JAX", "jax.dlpack"),
        }
    }
}

/// Returns the module of a library.
///
/// # Errors
///
/// `ImportError` if the library is not installed. The message states what to do. Other exceptions of the import are
/// passed on.
pub(crate) fn library(py: Python<'_>, library: Library) -> PyResult<Bound<'_, PyAny>> {
    let (name, module) = library.names();
    let interned = PyString::intern(py, module);
    if let Some(module) = imported(&interned) {
        return Ok(module);
    }
    py.import(interned).map(Bound::into_any).map_err(|error| {
        if !error.is_instance_of::<PyImportError>(py) {
            return error;
        }
        let text = format!(
            "the result: found no module `{module}`, allowed: an installed {name}, whose array the function returns; \
             install it, or return `python::NumPy`, or `python::InLibraryOf` for that of the caller's library"
        );
        let refusal = PyImportError::new_err(text);
        refusal.set_cause(py, Some(error));
        refusal
    })
}

/// Returns the object itself, if it has a function `from_dlpack`.
fn with_from_dlpack<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let function = ignore_exception(py, object.getattr(intern!(py, "from_dlpack")))?;
    Ok(function.filter(PyAnyMethods::is_callable).map(|_| object.clone()))
}

/// Returns the array API namespace of an object, if it has a function `from_dlpack`.
fn namespace_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let namespace = ignore_exception(py, object.call_method0(intern!(py, "__array_namespace__")))?;
    namespace.map_or(Ok(None), |namespace| with_from_dlpack(&namespace))
}

/// Returns the first of these packages that is imported and has a function `from_dlpack`.
fn package_with_from_dlpack<'py>(
    py: Python<'py>,
    packages: &[(String, String)],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    for (package, _) in packages {
        if let Some(module) = modules.get_item(package)? {
            if let Some(found) = with_from_dlpack(&module)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Makes later work of the library of `object` wait for the work that is now on `stream`.
///
/// Call it after you have queued work on the object's memory on a stream that the library does not know. `device` is
/// the device of that memory.
///
/// An import makes your stream wait for the library, and a release waits for all work. In between, only this function
/// prevents the library from writing to memory that a kernel still reads.
///
/// The library's stream is determined now, because it may have changed since the import: it is the one on which the library
/// works, or else that of the object's interface dict. If none is known, all later work of the context waits for `stream`.
/// The function does nothing for host memory, or if both are the same stream.
///
/// A [`LaunchScope`](crate::LaunchScope) does this for each of its arrays.
///
/// # Errors
///
/// - As [`cuda::stream_wait`](crate::cuda::stream_wait) and
///   [`cuda::stream_synchronize`](crate::cuda::stream_synchronize). These include
///   [`ErrorKind::StreamCapture`](crate::error::ErrorKind::StreamCapture) if only one of the streams captures a graph.
/// - As [`extract_cai`] for the object's dict. Exceptions of the object are passed on.
///
/// ```no_run
/// use interop_core::python::{extract_stream, import, make_producer_wait};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn blur(object: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
///     let stream = extract_stream(stream)?;
///     let array = import(object, Some(stream))?;
///     // … kernels that read and write the array, on `stream` …
///     make_producer_wait(object, stream, array.info().device())
/// }
/// ```
pub fn make_producer_wait(object: &Bound<'_, PyAny>, stream: StreamHandle, device: Device) -> PyResult<()> {
    if device.device_type == DeviceType::CPU || stream == StreamHandle::NothingPending {
        return Ok(());
    }
    let named = |error| PyErr::from(of(object, error));
    if let Some(theirs) = stream_of(object, device)? {
        return cuda::stream_wait(theirs, stream, device).map_err(named);
    }
    if cuda::make_context_wait((0, device), (PendingWork::on(stream), device)).map_err(named)? {
        return Ok(());
    }
    detached(object.py(), || cuda::stream_synchronize(stream, device)).map_err(named)
}

/// Makes the library of `object` wait for the work that is pending on an array in the memory of that object.
///
/// # Errors
///
/// As [`make_producer_wait`].
pub(crate) fn make_producer_wait_for(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
    if info.device().device_type == DeviceType::CPU || info.pending.is_nothing() {
        return Ok(());
    }
    match (stream_of(object, info.device())?, info.stream()) {
        (Some(theirs), _) => cuda::make_consumer_wait(info, theirs).map_err(|error| of(object, error).into()),
        (None, _) => cuda::make_context_wait_for(info).map_err(|error| of(object, error).into()),
    }
}

/// Returns the stream on which the library of `object` works with memory of `device`, if it is known.
fn stream_of(object: &Bound<'_, PyAny>, device: Device) -> PyResult<Option<StreamHandle>> {
    let (py, class) = (object.py(), type_info(object)?);
    if let Some(current) = class.current_stream(object, device)? {
        return Ok(Some(current.handle));
    }
    if class.exchange.is_some() {
        return Ok(None);
    }
    let Some(interface) = attribute(object, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    let stream = extract_cai(&interface)?.stream;
    Ok((stream != StreamHandle::NothingPending).then_some(stream))
}
