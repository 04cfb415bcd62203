//! What is known of an array, as a dict.

use interop_core::python::{Imported, consumer_stream, import, import_capsule, interface_of};
use interop_core::{DeviceType, Facts, StreamHandle};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

/// Imports an object that speaks a protocol, or a raw DLPack capsule, and says what it is.
#[pyfunction]
#[pyo3(signature = (obj, *, stream=None))]
pub(crate) fn describe<'py>(
    obj: &Bound<'py, PyAny>,
    stream: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let imported = import_any(obj, stream)?;
    dict_of(obj.py(), imported.import.facts(), imported.protocol.name())
}

/// Reads a `__cuda_array_interface__` dict, without a driver and without looking at the memory.
#[pyfunction]
pub(crate) fn parse_cai<'py>(d: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    dict_of(d.py(), &interface_of(d)?.facts()?, "cai")
}

/// An import of an object or of a raw capsule.
pub(crate) fn import_any(object: &Bound<'_, PyAny>, stream: Option<Bound<'_, PyAny>>) -> PyResult<Imported> {
    let stream = stream.map(|stream| consumer_stream(&stream)).transpose()?;
    if object.is_instance_of::<PyCapsule>() {
        let imported = import_capsule(object)?;
        // Whoever names a stream has asked for the capsule with it.
        return Ok(match stream {
            Some(stream) => Imported { import: imported.import.on_stream(stream), ..imported },
            None => imported,
        });
    }
    import(object, stream)
}

fn dict_of<'py>(py: Python<'py>, facts: &Facts, protocol: &str) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let device = facts.device();
    let known = device.device_type != DeviceType::UNKNOWN;
    let dtype = facts.dtype().typestr().map_or_else(|| facts.dtype().name(), |typestr| typestr.to_string());
    let stream = match facts.stream() {
        StreamHandle::NothingPending => None,
        stream => stream.to_raw(),
    };
    dict.set_item("protocol", protocol)?;
    dict.set_item("device", known.then_some((device.device_type.0, device.device_id)))?;
    dict.set_item("dtype", dtype)?;
    dict.set_item("shape", PyTuple::new(py, facts.shape())?)?;
    dict.set_item("strides", PyTuple::new(py, facts.strides())?)?;
    dict.set_item("readonly", facts.is_readonly())?;
    dict.set_item("data", facts.address())?;
    dict.set_item("nbytes", facts.nbytes())?;
    dict.set_item("stream", stream)?;
    Ok(dict)
}
