//! Makes a library's later work wait for this crate's consumer.

use pyo3::intern;
use pyo3::prelude::*;

use crate::array::device::{Device, DeviceType};
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::python::detach::detached;
use crate::python::errors::of;
use crate::python::import::exchange_table::work_stream;
use crate::python::import::interface_dict::extract_cai;
use crate::python::import::type_cache::type_info;
use crate::python::unstable_api::attribute;

/// Makes later work of the library of `object` wait for the work that is now on `stream`.
///
/// Call it after you have queued work on the object's memory on a stream that the library does not know. `device` is
/// the device of that memory.
///
/// An import makes your stream wait for the library, and a release waits for all work. In between, only this function
/// prevents the library from writing to memory that a kernel still reads.
///
/// The library's stream is determined now, because it may have changed since the import: it is the stream of the
/// exchange table, or else that of the object's interface dict. If neither names a stream, the host waits for `stream`.
/// The function does nothing for host memory, or if both are the same stream.
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

/// Returns the stream on which the library of `object` works with memory of `device`, or `NothingPending` if it is not
/// known.
fn stream_of(object: &Bound<'_, PyAny>, device: Device) -> PyResult<StreamHandle> {
    let py = object.py();
    if let Some(table) = type_info(object)?.exchange {
        if let Some(stream) = work_stream(table, py, device)? {
            return Ok(stream);
        }
    }
    let Some(interface) = attribute(object, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(StreamHandle::NothingPending);
    };
    Ok(extract_cai(&interface)?.stream)
}
