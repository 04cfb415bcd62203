//! Import through `__dlpack__`, for arrays that are not on the host by definition.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::array::device::Device;
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::error::{Error, ErrorKind};
use crate::memory::import::Import;
use crate::python::convert::device;
use crate::python::detach::free_detached;
use crate::python::errors::{Failure, of};
use crate::python::import::capsule::from_capsule;
use crate::python::import::dlpack_call::{DlpackMethod, request, request_for};
use crate::python::import::protocol::Protocol;
use crate::python::import::receive::ImportSlot;

/// Through `__dlpack__`, which is told the stream of our work where the memory has one.
pub(crate) fn from_method(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Failure> {
    // A class that promised host memory has been asked for it.
    if let Some(expected) = method.expected_device.device().filter(|expected| *expected != Device::CPU) {
        if let Some(protocol) = from_expected_device(to, object, method, stream, expected)? {
            return Ok(protocol);
        }
        method.expected_device.give_up();
        *to.import = Import::EMPTY;
    }
    from_any_device(to, object, method, stream)
}

/// As [`from_method`], of a class of which it is not known where its arrays are.
fn from_any_device(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Failure> {
    let py = object.py();
    let said = object.call_method0(pyo3::intern!(py, "__dlpack_device__"))?;
    let said = device(&said, "__dlpack_device__").map_err(|fault| fault.of(object))?;
    let named = |error| of(object, error);
    // Before a capsule is asked for: other kinds of device have other rules about streams.
    said.check().map_err(named)?;
    let consumer = method.consumer(stream, said);
    // Producers look at the device that is current, and the default streams are those of its context.
    let entered = cuda::enter_device_context(said).map_err(named)?;
    let (capsule, told) = request_for(object, method, consumer, said)?;
    let protocol = from_capsule(to, object, capsule)?;
    let found = to.import.info().device();
    if !same_memory(said, found) {
        let place = "__dlpack_device__";
        let allowed = format!("{found}, which its capsule says");
        return Err(named(Error::new(ErrorKind::Device, place, said, allowed)).into());
    }
    if told == Some(consumer) {
        method.expected_device.note(found);
    } else if found != Device::CPU && cuda::is_available() {
        // No stream works on what is the host's alone, as PyTorch calls pinned memory in its capsules; nor without a driver.
        free_detached();
        match told {
            Some(told) => cuda::stream_wait(consumer, told, found),
            None => cuda::wait_for_unknown_stream(consumer, found),
        }
        .map_err(named)?;
    }
    to.import.put_on_ordered_stream(consumer, None, entered.map(|entered| entered.context()));
    Ok(protocol)
}

/// As [`from_method`], of a class whose arrays have always been on this device; `None` when this one is not, or when it
/// does not take our stream.
#[cold]
fn from_expected_device(
    to: &mut ImportSlot<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
    expected: Device,
) -> Result<Option<Protocol>, Failure> {
    let consumer = method.consumer(stream, expected);
    let entered = cuda::enter_device_context(expected).map_err(|error| of(object, error))?;
    let capsule = match request(object, method, consumer.to_dlpack(expected.device_type)) {
        Ok(capsule) => capsule,
        // The array may be where other streams are taken.
        Err(error) if error.is_instance_of::<PyException>(object.py()) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let protocol = from_capsule(to, object, capsule)?;
    if to.import.info().device() != expected {
        return Ok(None);
    }
    to.import.put_on_ordered_stream(consumer, None, entered.map(|entered| entered.context()));
    Ok(Some(protocol))
}

/// Whether two statements about a device agree. Libraries name pinned and managed memory one way in
/// `__dlpack_device__` and another in the capsule, so the host kinds are one.
fn same_memory(said: Device, found: Device) -> bool {
    said.normalized() == found
        || (said.device_type.is_host_accessible() && found.device_type.is_host_accessible())
}
