//! The way back: a library's later work after ours.

use pyo3::intern;
use pyo3::prelude::*;

use crate::array::device::{Device, DeviceType};
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::python::detach::detached;
use crate::python::errors::of;
use crate::python::import::exchange_table::work_stream;
use crate::python::import::interface_dict::extract_interface;
use crate::python::import::type_cache::type_info;
use crate::python::interpreter::attribute;

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
/// As [`cuda::stream_wait`](crate::cuda::stream_wait) and [`cuda::stream_synchronize`](crate::cuda::stream_synchronize), with
/// [`ErrorKind::StreamCapture`](crate::error::ErrorKind::StreamCapture) among them where a graph is captured on one side only; as
/// [`extract_interface`] for the object's dict, and what the object raises when it is asked for it is passed on.
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
    if device.device_type == DeviceType::CPU {
        return Ok(());
    }
    let named = |error| PyErr::from(of(object, error));
    match stream_of(object, device)? {
        StreamHandle::NothingPending => {
            detached(object.py(), || cuda::stream_synchronize(stream, device)).map_err(named)
        }
        theirs => cuda::stream_wait(theirs, stream, device).map_err(named),
    }
}

/// The stream on which the library of `object` works with memory of `device`, if it says so anywhere.
fn stream_of(object: &Bound<'_, PyAny>, device: Device) -> PyResult<StreamHandle> {
    let py = object.py();
    if let Some(stream) = type_info(object)?.exchange.and_then(|table| work_stream(table, py, device)) {
        return Ok(stream);
    }
    let Some(interface) = attribute(object, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(StreamHandle::NothingPending);
    };
    Ok(extract_interface(&interface)?.stream)
}
