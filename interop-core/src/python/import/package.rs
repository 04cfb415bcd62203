//! The libraries whose classes are treated in a way of their own, and the streams on which they work.
#![expect(unsafe_code, reason = "a library states the handle of its own stream")]

use pyo3::exceptions::PyImportError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::array::device::Device;
use crate::array::stream_handle::StreamHandle;
use crate::memory::import::Import;
use crate::order::release::owner::Owner;
use crate::python::interpreter::{PyRef, ignore_exception, imported};

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
    pub(crate) fn from_class(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let names = class_names(class)?;
        let package = names.iter().find_map(|class| match (&*class.package, &*class.name) {
            ("numpy", "ndarray") => Some(Self::NumPy),
            ("torch", _) => Some(Self::PyTorch),
            ("cupy", _) => Some(Self::CuPy),
            ("jax" | "jaxlib", _) => Some(Self::Jax),
            ("numba" | "numba_cuda" | "numba_cuda_mlir", _) => Some(Self::Numba),
            ("warp", _) => Some(Self::Warp),
            ("tvm_ffi", _) => Some(Self::TvmFfi),
            ("nanobind", _) => Some(Self::Nanobind),
            ("cuda", _) => Some(Self::CudaCore),
            _ => None,
        });
        Ok(package.unwrap_or(Self::Other))
    }

    /// The name of a library whose arrays are results of functions. Empty for the others.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NumPy => "NumPy",
            Self::PyTorch => "PyTorch",
            Self::CuPy => "CuPy",
            Self::Jax => "JAX",
            _ => "",
        }
    }

    /// The module with the functions of such a library, or of one that tells its current stream.
    pub(crate) const fn module(self) -> &'static str {
        match self {
            Self::NumPy => "numpy",
            Self::PyTorch => "torch",
            Self::CuPy => "cupy",
            Self::Jax => "jax.dlpack",
            Self::Warp => "warp",
            _ => "",
        }
    }

    /// Calls the function of a library that returns the stream on which it works now.
    ///
    /// # Errors
    ///
    /// The exception that the function raises.
    pub(crate) fn current_stream(
        self,
        py: Python<'_>,
        device: Device,
    ) -> PyResult<Option<CurrentStream<'_>>> {
        match self {
            Self::PyTorch => stream_of_pytorch(py, device).map(Some),
            Self::CuPy => stream_of_cupy(py, device).map(Some),
            Self::Warp => stream_of_warp(py, device).map(Some),
            Self::TvmFfi => stream_of_tvm_ffi(py, device),
            _ => Ok(None),
        }
    }

    /// Whether a tensor that is not valid may be right in the interface dict: `CuPy` divides negative strides as unsigned numbers.
    pub(crate) fn misstates_tensors(self) -> bool {
        self == Self::CuPy
    }

    /// Whether the library works on the stream that its exchange table returns. A table that always returns the legacy
    /// default stream, as those of this crate's classes do, only says that the array is ready there.
    pub(crate) fn works_on(self, stream: StreamHandle) -> bool {
        self == Self::PyTorch || stream != StreamHandle::LegacyDefault
    }
}

/// The stream on which a library works now, on this thread and with one device.
pub(crate) struct CurrentStream<'py> {
    pub(crate) handle: StreamHandle,
    /// The object that owns the stream. `None` for a stream that lives as long as its library.
    pub(crate) owner: Option<Bound<'py, PyAny>>,
}

impl CurrentStream<'_> {
    /// Puts an import on this stream, and keeps the stream alive as long as the import.
    pub(crate) fn put(self, import: &mut Import) {
        let context = import.context();
        if let Some(owner) = self.owner {
            let reach = import.owner.reach();
            // The memory is released before its stream.
            let both = (core::mem::take(&mut import.owner).with_reach(None), PyRef::new(owner.unbind()));
            import.owner = Owner::new(both).with_reach(reach);
        }
        import.put_on_callers_stream(self.handle, context);
    }
}

/// A class: its top package and its name.
pub(crate) struct ClassName {
    pub(crate) package: String,
    pub(crate) name: String,
}

/// Returns the names of the class and of each of its bases, in method resolution order.
pub(crate) fn class_names(class: &Bound<'_, PyType>) -> PyResult<Vec<ClassName>> {
    let py = class.py();
    let text = |name: PyResult<Bound<'_, PyString>>| -> PyResult<String> {
        Ok(ignore_exception(py, name)?.map_or_else(String::new, |name| name.to_string_lossy().into_owned()))
    };
    let mut names = Vec::new();
    // Not `PyType::mro`, which panics if a metaclass overrides the attribute.
    let order = class.getattr(intern!(py, "__mro__")).and_then(|order| Ok(order.cast_into::<PyTuple>()?));
    let order = ignore_exception(py, order)?;
    for class in order.iter().flatten() {
        let Ok(class) = class.cast_into::<PyType>() else { continue };
        let module = text(class.module())?;
        let package = module.split('.').next().unwrap_or_default().into();
        names.push(ClassName { package, name: text(class.name())? });
    }
    Ok(names)
}

/// Reads the handle of a stream that a library has stated, where 0 is the legacy default stream.
fn handle_in(number: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    // SAFETY: the library works on this stream now, so it is live. Python code cannot guarantee it in any other way.
    number.extract::<usize>().map(|handle| unsafe { StreamHandle::from_raw(handle) })
}

/// `PyTorch` before 2.10 has no exchange table. Its streams live as long as the program, except external ones.
fn stream_of_pytorch(py: Python<'_>, device: Device) -> PyResult<CurrentStream<'_>> {
    let internals = module(py, intern!(py, "torch"))?.getattr(intern!(py, "_C"))?;
    let number = internals.call_method1(intern!(py, "_cuda_getCurrentRawStream"), (device.device_id,))?;
    Ok(CurrentStream { handle: handle_in(&number)?, owner: None })
}

/// `CuPy` destroys a stream together with the last reference to its object.
fn stream_of_cupy(py: Python<'_>, device: Device) -> PyResult<CurrentStream<'_>> {
    let cuda = module(py, intern!(py, "cupy"))?.getattr(intern!(py, "cuda"))?;
    let stream = cuda.call_method1(intern!(py, "get_current_stream"), (device.device_id,))?;
    let handle = handle_in(&stream.getattr(intern!(py, "ptr"))?)?;
    // The default streams are never destroyed.
    let owner = matches!(handle, StreamHandle::Raw(_)).then_some(stream);
    Ok(CurrentStream { handle, owner })
}

/// Warp has a current stream for each device.
fn stream_of_warp(py: Python<'_>, device: Device) -> PyResult<CurrentStream<'_>> {
    let name = format!("cuda:{}", device.device_id);
    let stream = module(py, intern!(py, "warp"))?.call_method1(intern!(py, "get_stream"), (name,))?;
    let handle = stream.getattr(intern!(py, "cuda_stream"))?;
    // Warp writes `None` for the legacy default stream.
    let handle = if handle.is_none() { StreamHandle::LegacyDefault } else { handle_in(&handle)? };
    Ok(CurrentStream { handle, owner: Some(stream) })
}

/// TVM FFI has a stream for each thread and device, which is set during a call of a function. Otherwise it is 0.
fn stream_of_tvm_ffi(py: Python<'_>, device: Device) -> PyResult<Option<CurrentStream<'_>>> {
    let tvm_ffi = module(py, intern!(py, "tvm_ffi"))?;
    let device = tvm_ffi.call_method1(intern!(py, "device"), ("cuda", device.device_id))?;
    let number = tvm_ffi.call_method1(intern!(py, "get_raw_stream"), (device,))?;
    if number.extract::<usize>()? == 0 {
        return Ok(None);
    }
    Ok(Some(CurrentStream { handle: handle_in(&number)?, owner: None }))
}

/// Returns the module of a library.
///
/// # Errors
///
/// `ImportError` if the library is not installed. The message states what to do. Other exceptions of the import are
/// passed on.
pub(crate) fn library(py: Python<'_>, package: Package) -> PyResult<Bound<'_, PyAny>> {
    let (name, module) = (package.name(), package.module());
    self::module(py, &PyString::intern(py, module)).map_err(|error| {
        if !error.is_instance_of::<PyImportError>(py) {
            return error;
        }
        let text = format!(
            "the result: found no module `{module}`, allowed: an installed {name}, whose array the function returns; \
             install it, or return `python::NumPy`, or `python::WithLibrary`, whose library is the caller's"
        );
        let refusal = PyImportError::new_err(text);
        refusal.set_cause(py, Some(error));
        refusal
    })
}

/// Returns a module, which is loaded as a rule.
fn module<'py>(py: Python<'py>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    imported(name).map_or_else(|| py.import(name).map(Bound::into_any), Ok)
}
