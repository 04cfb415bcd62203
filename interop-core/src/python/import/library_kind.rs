//! Determines the library of a Python object, and how that library creates an array from a tensor.

use std::sync::Arc;

use pyo3::exceptions::PyImportError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

use crate::python::import::exchange_table::{Table, makes_objects};
use crate::python::import::kind::Kind;
use crate::python::import::package::{Package, packages_of};
use crate::python::import::type_cache::{offered, type_info};
use crate::python::unstable_api::{ignore_exception, imported};

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
             install it, or return `python::NumPy`, or `python::SameKind` for that of the caller's library"
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
