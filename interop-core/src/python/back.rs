//! The way back: a library's later work after ours.

use pyo3::intern;
use pyo3::prelude::*;

use super::dict::interface_of;
use super::errors::of;
use super::exchange::work_stream;
use super::interpreter::attribute;
use super::release::without_lock;
use super::types::type_of;
use crate::cuda;
use crate::device::{Device, DeviceType};
use crate::stream::StreamHandle;

/// Makes work that the library of `object` queues later wait for the work that is on `stream` now: to be called after work
/// on an array of its own, in memory of `device`, was queued on a stream that it does not know.
///
/// An import orders the library's work before ours, and a release comes after all work; in between only this keeps the
/// library from writing into memory that a kernel still reads. Where the library works is asked for now, as it may have
/// moved on since the import: on the stream that its exchange table names, or else on that of the object's interface
/// dict. Where neither names one, the host waits, as nothing else orders work on a stream that is not known. Nothing is
/// called for host memory, or if both are the same stream.
///
/// # Errors
///
/// As [`cuda::order`](crate::cuda::order) and [`cuda::wait`](crate::cuda::wait), with
/// [`ErrorKind::Capture`](crate::ErrorKind::Capture) among them where a graph is captured on one side only; as
/// [`interface_of`] for the object's dict, and what the object raises when it is asked for it is passed on.
///
/// ```no_run
/// use interop_core::python::{consumer_stream, import, order_back};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn blur(object: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<()> {
///     let stream = consumer_stream(stream)?;
///     let array = import(object, Some(stream))?.import;
///     // … kernels that read and write the array, on `stream` …
///     order_back(object, stream, array.facts().device())
/// }
/// ```
pub fn order_back(object: &Bound<'_, PyAny>, stream: StreamHandle, device: Device) -> PyResult<()> {
    if device.device_type == DeviceType::CPU {
        return Ok(());
    }
    let named = |error| PyErr::from(of(object, error));
    match stream_of(object, device)? {
        StreamHandle::NothingPending => {
            without_lock(object.py(), || cuda::wait(stream, device)).map_err(named)
        }
        theirs => cuda::order(stream, theirs, device).map_err(named),
    }
}

/// The stream on which the library of `object` works with memory of `device`, if it says so anywhere.
fn stream_of(object: &Bound<'_, PyAny>, device: Device) -> PyResult<StreamHandle> {
    let py = object.py();
    if let Some(stream) = type_of(object)?.exchange.and_then(|table| work_stream(table, py, device)) {
        return Ok(stream);
    }
    let Some(interface) = attribute(object, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(StreamHandle::NothingPending);
    };
    Ok(interface_of(&interface)?.stream)
}
