//! The libraries whose classes are treated in a way of their own.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::python::unstable_api::ignore_exception;

/// The library that defines a class or one of its bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Package {
    NumPy,
    PyTorch,
    CuPy,
    Jax,
    Numba,
    Warp,
    TvmFfi,
    Nanobind,
    CudaCore,
    Other,
}

impl Package {
    /// Determines the library by the packages of the class and its bases, the class first.
    ///
    /// # Errors
    ///
    /// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. Any other exception of the class is ignored.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let known = packages_of(class)?.into_iter().find_map(|(package, name)| match (&*package, &*name) {
            ("numpy", "ndarray") => Some(Self::NumPy),
            ("torch", _) => Some(Self::PyTorch),
            ("cupy", _) => Some(Self::CuPy),
            ("jax" | "jaxlib", _) => Some(Self::Jax),
            ("numba" | "numba_cuda", _) => Some(Self::Numba),
            ("warp", _) => Some(Self::Warp),
            ("tvm_ffi", _) => Some(Self::TvmFfi),
            ("nanobind", _) => Some(Self::Nanobind),
            ("cuda", _) => Some(Self::CudaCore),
            _ => None,
        });
        Ok(known.unwrap_or(Self::Other))
    }

    /// Whether `__dlpack__` of the library accepts the stream -1, which requests no wait.
    ///
    /// JAX passes -1 to the driver as a handle (`NVIDIA/cuda-python#285`). This cannot be detected in advance, and an
    /// invalid handle can crash the process. A library that rejects -1 with an error is called again with another stream.
    pub(crate) fn takes_unordered(self) -> bool {
        self != Self::Jax
    }

    /// Whether `__dlpack__` of the library makes the consumer's stream wait. Some libraries accept a stream and ignore it.
    pub(crate) fn heeds_stream(self) -> bool {
        !matches!(self, Self::TvmFfi | Self::Nanobind | Self::CudaCore)
    }

    /// Whether `__dlpack_device__` and the capsule of the library always state the same device. So only the capsule is
    /// requested: a call of `__dlpack_device__` costs as much as the capsule there, and more in JAX.
    pub(crate) fn states_one_device(self) -> bool {
        matches!(self, Self::Jax | Self::CuPy)
    }
}

/// Returns the top package and the name of the class and of each of its bases, in method resolution order.
pub(crate) fn packages_of(class: &Bound<'_, PyType>) -> PyResult<Vec<(String, String)>> {
    let py = class.py();
    let text = |name: PyResult<Bound<'_, PyString>>| -> PyResult<String> {
        Ok(ignore_exception(py, name)?.map_or_else(String::new, |name| name.to_string_lossy().into_owned()))
    };
    let mut packages = Vec::new();
    // Not `PyType::mro`, which panics if a metaclass overrides the attribute.
    let order = class.getattr(intern!(py, "__mro__")).and_then(|order| Ok(order.cast_into::<PyTuple>()?));
    let order = ignore_exception(py, order)?;
    for class in order.iter().flatten() {
        let Ok(class) = class.cast_into::<PyType>() else { continue };
        let module = text(class.module())?;
        packages.push((module.split('.').next().unwrap_or_default().into(), text(class.name())?));
    }
    Ok(packages)
}
