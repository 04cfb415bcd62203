//! Import by `__dlpack__`.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::array::device::{Device, DeviceType};
use crate::array::stream::StreamHandle;
use crate::cuda;
use crate::cuda::context::{Context, Entered};
use crate::error::{Error, ErrorKind};
use crate::memory::import::Import;
use crate::python::capsule::take_from;
use crate::python::convert::device;
use crate::python::detach::free_detached;
use crate::python::errors::{Failure, of};
use crate::python::import::dlpack_call::{call_dlpack, call_dlpack_for, has_method, lacks_method};
use crate::python::import::package::CurrentStream;
use crate::python::import::receive::receive_capsule;
use crate::python::import::step::{Answer, Request};

/// The second step: `__dlpack__`, with the consumer's stream if the memory has streams.
pub(crate) fn from_dlpack(request: &Request<'_, '_>, to: &mut Import) -> Answer {
    let (object, method) = (request.object, &request.class.method);
    if let Some(expected) = method.expected_device.device() {
        if from_expected_device(request, to, expected)? {
            return Ok(true);
        }
        *to = Import::EMPTY;
    }
    if !method.has_method && !has_method(object)? {
        return Ok(false);
    }
    match from_any_device(request, to) {
        Err(Failure::Raised(error)) if method.has_method && lacks_method(object, &error)? => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// Imports the tensor of a capsule that the object returned.
fn from_capsule(
    request: &Request<'_, '_>,
    to: &mut Import,
    capsule: Bound<'_, PyAny>,
) -> Result<(), Failure> {
    let tensor = take_from(request.object, capsule)?;
    Ok(receive_capsule(to, tensor, request.verification).map_err(|error| of(request.object, error))?)
}

/// Imports an array of a class whose device is not predicted: calls `__dlpack_device__` first.
fn from_any_device(request: &Request<'_, '_>, to: &mut Import) -> Result<(), Failure> {
    let (object, method, stream) = (request.object, &request.class.method, request.stream);
    let stated = object.call_method0(pyo3::intern!(object.py(), "__dlpack_device__"))?;
    let stated = device(&stated, "__dlpack_device__").map_err(|failure| failure.of(object))?;
    let named = |error| of(object, error);
    // Checked before the call of `__dlpack__`, because other device types have other rules about streams.
    stated.check().map_err(named)?;
    let current = request.callers_stream(stated)?;
    // A library whose own stream is used from here on has nothing to order.
    let stream = current.as_ref().map_or(stream, |_| Some(StreamHandle::NothingPending));
    let consumer = method.consumer(stream, stated);
    let entered = enter(stated, consumer).map_err(named)?;
    let (capsule, told) = call_dlpack_for(object, method, consumer, stated)?;
    from_capsule(request, to, capsule)?;
    let found = to.info().device();
    if !same_memory(stated, found) {
        let allowed = format!("{found}, as its capsule states");
        return Err(named(Error::new(ErrorKind::Device, "__dlpack_device__", stated, allowed)).into());
    }
    if told == Some(consumer) {
        method.expected_device.note(found);
    } else if found != Device::CPU && cuda::is_available() {
        // The producer did not accept the consumer's stream, so this code makes it wait. CPU memory has no streams, but
        // `PyTorch` describes pinned memory as CPU memory in its capsules.
        free_detached();
        match told {
            Some(told) => cuda::stream_wait(consumer, told, found),
            None => cuda::wait_for_unknown_stream(consumer, found),
        }
        .map_err(named)?;
    }
    put_on(request, to, current, consumer, entered.map(|entered| entered.context()))
}

/// Makes a context of the memory's device current for the call of a producer that has to make a stream wait: producers use
/// the current device, and the default streams are those of the current context.
fn enter(device: Device, consumer: StreamHandle) -> crate::error::Result<Option<Entered<'static>>> {
    match consumer {
        StreamHandle::NothingPending => Ok(None),
        _ => cuda::enter_device_context(device),
    }
}

/// Puts an import on the stream on which its library works, or on the consumer's, which the library has made wait. For a
/// library that makes no stream wait, the consumer's stream waits for all work.
///
/// # Errors
///
/// As [`cuda::stream_wait`].
fn put_on(
    request: &Request<'_, '_>,
    to: &mut Import,
    current: Option<CurrentStream<'_>>,
    consumer: StreamHandle,
    context: Option<Context>,
) -> Result<(), Failure> {
    let device_type = to.info().device().device_type;
    // Host memory is used on no stream.
    if device_type == DeviceType::CPU {
        return Ok(());
    }
    if let Some(current) = current.filter(|_| device_type == DeviceType::CUDA) {
        current.receive(to);
        return Ok(());
    }
    let is_unordered = !request.class.package.heeds_stream() && consumer != StreamHandle::NothingPending;
    if is_unordered {
        free_detached();
        to.make_wait_for_unknown(consumer).map_err(|error| of(request.object, error))?;
    }
    to.put_on_ordered_stream(consumer, None, context);
    request.note_hidden_streams(to);
    Ok(())
}

/// Imports an array of a class whose arrays have all been on `expected`, with one call instead of two.
///
/// Returns `false` if this array is on another device, or if the object does not accept the consumer's stream.
fn from_expected_device(request: &Request<'_, '_>, to: &mut Import, expected: Device) -> Answer {
    let (object, method) = (request.object, &request.class.method);
    let current = request.callers_stream(expected)?;
    let stream = current.as_ref().map_or(request.stream, |_| Some(StreamHandle::NothingPending));
    let consumer = method.consumer(stream, expected);
    let entered = enter(expected, consumer).map_err(|error| of(object, error))?;
    let capsule = match call_dlpack(object, method, consumer.to_dlpack(expected.device_type)) {
        Ok(capsule) => capsule,
        // The import then tries the other protocols.
        Err(error) if expected == Device::CPU && lacks_method(object, &error)? => return Ok(false),
        // The array may be on a device that accepts other streams.
        Err(error) if expected != Device::CPU && error.is_instance_of::<PyException>(object.py()) => {
            method.expected_device.give_up();
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    from_capsule(request, to, capsule)?;
    if to.info().device() != expected {
        method.expected_device.give_up();
        return Ok(false);
    }
    put_on(request, to, current, consumer, entered.map(|entered| entered.context()))?;
    Ok(true)
}

/// Returns whether two statements about a device agree.
///
/// Libraries may describe pinned and managed memory differently in `__dlpack_device__` and in the capsule. So all kinds
/// of host-accessible memory count as the same.
fn same_memory(said: Device, found: Device) -> bool {
    said.normalized() == found
        || (said.device_type.is_host_accessible() && found.device_type.is_host_accessible())
}
