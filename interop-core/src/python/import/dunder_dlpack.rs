//! Calls `__dlpack__` with a stream and a version, and retries with fewer arguments for producers that accept less.

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::driver::device::{Device, DeviceType};
use crate::driver::stream_handle::StreamHandle;
use crate::protocols::dlpack::abi::{MAJOR_VERSION, MINOR_VERSION};
use crate::python::errors::set_first_cause;
use crate::python::interpreter::{attribute, call_with_keywords, is_ordinary};

/// The device on which all arrays of a class have been so far, if it predicts that of the next one.
///
/// `__dlpack__` is called as for an array on that device. If the capsule states another device, the import starts again
/// with `__dlpack_device__`, and so do all later imports of the class.
#[derive(Clone, Copy)]
pub(crate) enum ExpectedDevice {
    /// No array has been imported yet.
    New,
    Device(Device),
    /// The device is not predicted, because there were several or it is unknown.
    None,
}

/// Requests a capsule for work on `consumer`. Returns it with the stream that was passed.
///
/// Some producers do not accept every stream of their device. They are called again with another stream or none, and
/// the caller must then make `consumer` wait.
pub(crate) fn call_dlpack_for<'py>(
    object: &Bound<'py, PyAny>,
    consumer: StreamHandle,
    device: Device,
) -> PyResult<(Bound<'py, PyAny>, Option<StreamHandle>)> {
    let first = match call_dlpack(object, consumer.to_dlpack(device.device_type)) {
        Ok(capsule) => return Ok((capsule, Some(consumer))),
        Err(error) => error,
    };
    let less = match (consumer, device.device_type) {
        (_, DeviceType::CPU) => return Err(first),
        // PyTorch and Warp describe pinned memory as host memory, which has no streams. NumPy accepts a stream for no memory.
        (_, DeviceType::CUDA_HOST | DeviceType::CUDA_MANAGED) => None,
        // PyTorch rejects per-thread default streams, and JAX uses -1 as a handle.
        (StreamHandle::PerThreadDefault | StreamHandle::NothingPending, _) => {
            Some(StreamHandle::LegacyDefault)
        }
        _ => return Err(first),
    };
    if !is_ordinary(object.py(), &first) {
        return Err(first);
    }
    match call_dlpack(object, less.and_then(|stream| stream.to_dlpack(device.device_type))) {
        Ok(capsule) => Ok((capsule, less)),
        // Returns the producer's error about the requested stream, unless the second one is not an `Exception`, such as
        // `KeyboardInterrupt`.
        Err(second) if is_ordinary(object.py(), &second) => Err(first),
        Err(second) => Err(second),
    }
}

/// Returns whether the object has a `__dlpack__`. As for all special methods, `None` means that there is none.
pub(crate) fn has_method(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let method = attribute(object, intern!(object.py(), "__dlpack__"))?;
    Ok(method.is_some_and(|method| !method.is_none()))
}

/// Returns whether this error of a `__dlpack__` call means that the object has no such method.
///
/// A class may lose the method, hide it from some objects, or set it to `None`, which is not callable.
#[cold]
pub(crate) fn lacks_method(object: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
    let py = object.py();
    let may_lack = error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyTypeError>(py);
    if !may_lack {
        return Ok(false);
    }
    match has_method(object) {
        Ok(has) => Ok(!has),
        // If the attribute raises again, the first error already explains why.
        Err(again) if is_ordinary(py, &again) => Ok(false),
        Err(interrupt) => Err(interrupt),
    }
}

/// Calls `__dlpack__` with the keywords of the current standard, then with those of older ones.
fn call_dlpack<'py>(object: &Bound<'py, PyAny>, stream: Option<i128>) -> PyResult<Bound<'py, PyAny>> {
    /// The version, and the names of the keywords without and with a stream.
    static WORDS: PyOnceLock<[Py<PyTuple>; 3]> = PyOnceLock::new();
    let py = object.py();
    let method = intern!(py, "__dlpack__");
    let words = WORDS.get_or_try_init(py, || {
        let (version, stream) = (intern!(py, "max_version"), intern!(py, "stream"));
        let version_number = PyTuple::new(py, [MAJOR_VERSION, MINOR_VERSION])?;
        let words = [version_number, PyTuple::new(py, [version])?, PyTuple::new(py, [version, stream])?];
        Ok::<_, PyErr>(words.map(Bound::unbind))
    })?;
    let [version, without_stream, with_stream] = words.each_ref().map(|tuple| tuple.bind(py));
    let first = match stream {
        None => call_with_keywords(object, method, without_stream, [version.as_any()]),
        Some(stream) => {
            // Without CPython's own functions, a conversion from 128 bits takes eight calls.
            let stream = match i64::try_from(stream) {
                Ok(stream) => stream.into_pyobject(py)?,
                Err(_) => stream.into_pyobject(py)?,
            };
            call_with_keywords(object, method, with_stream, [version.as_any(), stream.as_any()])
        }
    };
    first.or_else(|error| call_with_fewer_keywords(object, stream, error))
}

/// As [`call_dlpack`], for a producer that raised `first` for the keywords of the current standard.
///
/// It is called again only if the first call failed because of its keywords, so that no other error of the producer is
/// hidden.
#[cold]
fn call_with_fewer_keywords<'py>(
    object: &Bound<'py, PyAny>,
    stream: Option<i128>,
    first: PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if !is_about_keywords(py, &first) {
        return Err(first);
    }
    let keywords = PyDict::new(py);
    if let Some(stream) = stream {
        keywords.set_item(intern!(py, "stream"), stream)?;
    }
    object
        .call_method(intern!(py, "__dlpack__"), (), Some(&keywords))
        .inspect_err(|error| set_first_cause(py, error, first))
}

/// Returns whether a call failed because the callee does not know a keyword.
///
/// The texts are those of Python, Cython, pybind11 and nanobind. Any other `TypeError` is the producer's own, also one
/// about a keyword that was not passed.
fn is_about_keywords(py: Python<'_>, error: &PyErr) -> bool {
    // The text of other exceptions is not requested, because that may run foreign code.
    if !error.is_instance_of::<PyTypeError>(py) {
        return false;
    }
    let text = error.value(py).to_string();
    let contains = |words: &str| text.contains(words);
    if contains("max_version") || contains("incompatible function arguments") {
        return true;
    }
    // The name of the keyword is in quotes.
    let names_one = contains("'") && (contains("unexpected keyword") || contains("invalid keyword"));
    contains("keyword") && !contains("missing") && (!names_one || contains("stream"))
}
