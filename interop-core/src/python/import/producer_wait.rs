//! Makes a library's later work wait for this crate's consumer.

use pyo3::intern;
use pyo3::prelude::*;

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::cuda;
use crate::python::detach::detached;
use crate::python::errors::of;
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
/// The library's stream is determined now, because it may have changed since the import: it is the one on which the library
/// works, or else that of the object's interface dict. If none is known, all later work of the context waits for `stream`.
/// The function does nothing for host memory, or if both are the same stream.
///
/// A [`LaunchScope`](crate::LaunchScope) does this for each of its arrays.
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
    if device.device_type == DeviceType::CPU || stream == StreamHandle::NothingPending {
        return Ok(());
    }
    let named = |error| PyErr::from(of(object, error));
    if let Some(theirs) = stream_of(object, device)? {
        return cuda::stream_wait(theirs, stream, device).map_err(named);
    }
    if cuda::make_context_wait((0, device), (PendingWork::on(stream), device)).map_err(named)? {
        return Ok(());
    }
    detached(object.py(), || cuda::stream_synchronize(stream, device)).map_err(named)
}

/// Makes the library of `object` wait for the work that is pending on an array in the memory of that object.
///
/// # Errors
///
/// As [`make_producer_wait`].
pub(crate) fn make_producer_wait_for(object: &Bound<'_, PyAny>, info: &ArrayInfo) -> PyResult<()> {
    if info.device().device_type == DeviceType::CPU || info.pending.is_nothing() {
        return Ok(());
    }
    match (stream_of(object, info.device())?, info.stream()) {
        (Some(theirs), _) => cuda::make_consumer_wait(info, theirs).map_err(|error| of(object, error).into()),
        (None, _) => cuda::make_context_wait_for(info).map_err(|error| of(object, error).into()),
    }
}

/// Returns the stream on which the library of `object` works with memory of `device`, if it is known.
fn stream_of(object: &Bound<'_, PyAny>, device: Device) -> PyResult<Option<StreamHandle>> {
    let (py, class) = (object.py(), type_info(object)?);
    if let Some(current) = class.current_stream(object, device)? {
        return Ok(Some(current.handle));
    }
    if class.exchange.is_some() {
        return Ok(None);
    }
    let Some(interface) = attribute(object, intern!(py, "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    let stream = extract_cai(&interface)?.stream;
    Ok((stream != StreamHandle::NothingPending).then_some(stream))
}
