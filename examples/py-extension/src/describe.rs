//! Describes an array as a dict.
#![expect(unsafe_code, reason = "states on which stream the array of a capsule is ready")]

use interop_core::python::{extract_cai, extract_stream, import, import_capsule};
use interop_core::storage::Protocol;
use interop_core::{ArrayInfo, DeviceType, Import, StreamHandle};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

/// Imports an object that supports one of the protocols, or a raw DLPack capsule, and returns a description of its
/// array.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
pub(crate) fn describe<'py>(
    obj: &Bound<'py, PyAny>,
    stream: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let import = import_any(obj, stream)?;
    let protocol = match import.protocol() {
        Some(Protocol::ExchangeTable) => "exchange",
        Some(Protocol::DlpackVersioned) => "dlpack_versioned",
        Some(Protocol::DlpackLegacy) => "dlpack",
        Some(Protocol::Buffer) => "buffer",
        Some(Protocol::NumPy) => "numpy",
        _ => "cai",
    };
    dict_of(obj.py(), import.info(), protocol)
}

/// Describes a `__cuda_array_interface__` dict, without a driver and without access to the memory.
#[pyfunction]
pub(crate) fn parse_cai<'py>(d: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    dict_of(d.py(), &extract_cai(d)?.info()?, "cai")
}

/// Imports an object or a raw capsule.
pub(crate) fn import_any(object: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Import> {
    let stream = stream.map(|stream| extract_stream(&stream)).transpose()?;
    if object.is_instance_of::<PyCapsule>() {
        let import = import_capsule(object)?;
        return Ok(match stream {
            // SAFETY: the caller has passed the stream to `__dlpack__` when it created the capsule.
            Some(stream) => unsafe { import.assume_ready_on(stream) },
            None => import,
        });
    }
    import(object, stream)
}

fn dict_of<'py>(py: Python<'py>, info: &ArrayInfo, protocol: &str) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let device = info.device();
    let known = device.device_type != DeviceType::UNKNOWN;
    let dtype = info.dtype().typestr().unwrap_or_else(|| info.dtype().to_string());
    let stream = info.stream().and_then(StreamHandle::to_raw);
    dict.set_item("protocol", protocol)?;
    dict.set_item("device", known.then_some((device.device_type.0, device.device_id)))?;
    dict.set_item("dtype", dtype)?;
    dict.set_item("shape", PyTuple::new(py, info.shape())?)?;
    dict.set_item("strides", PyTuple::new(py, info.strides())?)?;
    dict.set_item("readonly", info.is_read_only())?;
    dict.set_item("data", info.address())?;
    dict.set_item("nbytes", info.nbytes())?;
    dict.set_item("stream", stream)?;
    Ok(dict)
}
