//! The stream on which the library of an array works now.
#![expect(unsafe_code, reason = "a library states the handle of its own stream")]

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::array::device::{Device, DeviceType};
use crate::array::stream::StreamHandle;
use crate::memory::import::Import;
use crate::memory::owner::Owner;
use crate::python::import::exchange_table::{TableStream, table_stream};
use crate::python::import::package::Package;
use crate::python::import::type_cache::TypeInfo;
use crate::python::py_owner::PyOwner;
use crate::python::unstable_api::{ignore_exception, imported};

/// The stream on which a library works now, on this thread and with one device.
pub(crate) struct CurrentStream<'py> {
    pub(crate) handle: StreamHandle,
    /// The object that owns the stream. `None` for a stream that lives as long as its library.
    pub(crate) owner: Option<Bound<'py, PyAny>>,
}

impl CurrentStream<'_> {
    /// Puts an import on this stream, and keeps the stream alive as long as the import.
    pub(crate) fn receive(self, to: &mut Import) {
        let context = to.context();
        if let Some(owner) = self.owner {
            let scope = to.owner.scope();
            // The memory is released before its stream.
            let both = (to.take_owner().after(None), PyOwner::new(owner.unbind()));
            to.owner = Owner::new(both).after(scope);
        }
        to.put_on_callers_stream(self.handle, context);
    }
}

impl TypeInfo {
    /// Returns the stream on which the library of an object works now with memory of `device`, if that can be found out.
    ///
    /// # Errors
    ///
    /// Exceptions that are not an `Exception`, such as `KeyboardInterrupt`. Any other exception means that the stream is
    /// unknown.
    pub(crate) fn current_stream<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        device: Device,
    ) -> PyResult<Option<CurrentStream<'py>>> {
        let py = object.py();
        // Host memory, also pinned and managed memory, is used on no stream in particular.
        if device.device_type != DeviceType::CUDA {
            return Ok(None);
        }
        if let Some(table) = self.exchange {
            return Ok(match table_stream(table, py, device)? {
                // The classes of this crate answer so. Their memory may be that of a library on another stream.
                TableStream::Handle(handle) if !self.package.works_on(handle) => None,
                TableStream::Handle(handle) => Some(CurrentStream { handle, owner: None }),
                TableStream::Null => {
                    self.package.stream_of_null().map(|handle| CurrentStream { handle, owner: None })
                }
                TableStream::Absent => None,
            });
        }
        Ok(ignore_exception(py, self.package.current_stream(py, device))?.flatten())
    }
}

impl Package {
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

    /// Whether the library works on the stream that its exchange table returns. A table that always returns the legacy
    /// default stream, as those of this crate's classes do, only says that the array is ready there.
    pub(crate) fn works_on(self, stream: StreamHandle) -> bool {
        self == Self::PyTorch || stream != StreamHandle::LegacyDefault
    }

    /// Returns the stream that a null pointer of the exchange table means. In `PyTorch` it is the legacy default stream. In
    /// other libraries nobody has set a stream (TVM FFI outside of a call), or the library knows none (`cuda.core`).
    pub(crate) fn stream_of_null(self) -> Option<StreamHandle> {
        (self == Self::PyTorch).then_some(StreamHandle::LegacyDefault)
    }
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

/// Returns a module whose objects have been seen, so that it is loaded.
fn module<'py>(py: Python<'py>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    imported(name).map_or_else(|| py.import(name).map(Bound::into_any), Ok)
}
