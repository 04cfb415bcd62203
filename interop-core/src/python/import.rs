//! Any object that speaks a protocol, as an [`Import`].
#![expect(unsafe_code, reason = "believes what an object says of its memory")]

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::ask::{DlpackMethod, has_method, lacks_method, request, request_for};
use super::capsule::{Taken, from_capsule, take_from};
use super::device::device;
use super::dict::interface_in;
use super::errors::{Fault, no_array, of};
use super::exchange::{tensor_of, work_stream};
use super::interpreter::attribute;
use super::release::{Destination, PyOwner, drain_releases, free_without_lock};
use super::types::{Known, Table, TypeFacts, type_of};
use crate::cuda::{self, Trust};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::import::Import;
use crate::stream::StreamHandle;

/// The protocol that an array came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The C exchange table of the object's type.
    Exchange,
    /// A `dltensor_versioned` capsule.
    DlpackVersioned,
    /// A `dltensor` capsule.
    Dlpack,
    /// A `__cuda_array_interface__`.
    Cai,
}

impl Protocol {
    /// The name in messages and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::DlpackVersioned => "dlpack_versioned",
            Self::Dlpack => "dlpack",
            Self::Cai => "cai",
        }
    }
}

/// An array that came from Python, and how.
#[derive(Debug)]
pub struct Imported {
    /// The array.
    pub import: Import,
    /// The protocol that it came by.
    pub protocol: Protocol,
}

/// Imports any object that speaks a protocol, for work on `stream`.
///
/// `__dlpack__` is preferred to `__cuda_array_interface__`, which is read all the same where the tensor has strides that no
/// array has: `CuPy` loses the sign of those that go backwards, and has them right in its dict.
///
/// The producer is told the stream where its memory has one: nothing for CPU memory, a number otherwise, the legacy default
/// stream if `stream` is `None`. Some producers take it and order nothing (the arrays of nanobind, TVM FFI and `cuda.core`):
/// there the caller orders the work before the call.
///
/// A tensor of PyTorch's whose values are conjugated or negated only when somebody asks for them is refused, and a masked array
/// of NumPy's with masked elements. A tensor that requires a gradient is taken, because its exchange table does not say so: who
/// changes it looks at `requires_grad`.
///
/// The array keeps the object alive, or what it handed out, where Python's collector does not see it, as NumPy's do that come
/// by DLPack. An object that holds an array imported from itself is released when it lets go of that array, and not before.
///
/// # Errors
///
/// `TypeError` for an object that speaks neither protocol, or answers with something of another type than its protocol has;
/// `ArrayError` (a `BufferError` and a `ValueError`) for an array that cannot be used; both with its class in the text. What
/// the producer raises is passed on as it is.
///
/// ```no_run
/// use interop_core::python::{consumer_stream, import};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// #[pyo3(signature = (array, stream=None))]
/// fn describe(array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
///     let imported = import(array, stream.map(consumer_stream).transpose()?)?;
///     let facts = imported.import.facts();
///     Ok(format!("{} {:?} on {} by {}", facts.dtype(), facts.shape(), facts.device(), imported.protocol.name()))
/// }
/// ```
pub fn import(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Imported> {
    import_with(object, stream, Trust::Nothing)
}

/// As [`import`], but what a DLPack tensor says of its memory is believed: the driver is not asked where the address is and
/// how far the allocation goes, which saves one call for memory of CUDA. An interface dict says too little to be believed.
/// Memory that a graph allocates while it is captured comes in this way only, because the driver knows it when the graph has
/// run.
///
/// # Errors
///
/// As [`import`], for what can be seen without the driver.
///
/// # Safety
///
/// The object tells the truth about the device and the extent of its memory, and work on it is in primary contexts
/// ([`Import::from_dlpack_trusted`]). Objects of a library of which that is known are the only ones to be imported this way.
pub unsafe fn import_trusted(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Imported> {
    import_with(object, stream, Trust::Memory)
}

fn import_with(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>, trust: Trust) -> PyResult<Imported> {
    let mut import = Import::NOTHING;
    let protocol = import_to(&mut Destination { import: &mut import, trust }, object, stream)?;
    Ok(Imported { import, protocol })
}

/// As [`import`], to where the array will stay.
fn import_to(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
) -> PyResult<Protocol> {
    let mut handed_out = HandedOut::default();
    let known = meet(object, &mut handed_out)?;
    import_met(to, object, &known, handed_out, stream)
}

/// A tensor that came without a word about streams, if one did, and from where.
#[derive(Default)]
pub(super) struct HandedOut {
    pub(super) taken: Option<Taken>,
    /// The exchange table of the type; otherwise the type has promised host memory.
    table: Option<Table>,
}

/// What is known of an object's type; and, in its place, the tensor of an object that hands one out at once: returned, it
/// would be moved as soon as it was stored, which stalls.
pub(super) fn meet(object: &Bound<'_, PyAny>, handed_out: &mut HandedOut) -> PyResult<Known> {
    drain_releases(object.py());
    let known = type_of(object)?;
    if let Some(table) = known.exchange {
        if let Some(owned) = tensor_of(table, object)? {
            (handed_out.taken, handed_out.table) = (Some(Taken::Versioned(owned)), Some(table));
            return Ok(known);
        }
    }
    if known.method.usual_device.device() == Some(Device::CPU) {
        match request(object, &known.method, None) {
            Ok(capsule) => handed_out.taken = Some(take_from(object, capsule)?),
            // What else it has is seen to later.
            Err(error) if lacks_method(object, &error)? => {}
            Err(error) => return Err(error),
        }
    }
    Ok(known)
}

/// As [`import_to`], of an object that was met.
pub(super) fn import_met(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    known: &TypeFacts,
    handed_out: HandedOut,
    stream: Option<StreamHandle>,
) -> PyResult<Protocol> {
    let protocol = match import_memory(to, object, known, handed_out, stream) {
        Err(Fault::Found(error)) if has_lost_signs(&error) => {
            from_cai_instead(to, object, stream, error.into())?
        }
        answer => answer?,
    };
    known.values.check(object, to.import.facts())?;
    Ok(protocol)
}

/// Whether a tensor was refused for strides such as `CuPy` writes for arrays that go backwards, which it divides as if they
/// had no sign.
fn has_lost_signs(error: &Error) -> bool {
    error.kind() == ErrorKind::Overflow && error.place() == "strides"
}

/// By the interface dict, in which `CuPy` has the strides right; what is wrong with the tensor if that does not do, with what
/// is wrong with the dict as its cause.
#[cold]
fn from_cai_instead(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
    refused: PyErr,
) -> PyResult<Protocol> {
    let py = object.py();
    match from_cai(to, object, stream) {
        Ok(Some(protocol)) => return Ok(protocol),
        Ok(None) => {}
        Err(why) if why.is_instance_of::<PyException>(py) => refused.set_cause(py, Some(why)),
        Err(interrupt) => return Err(interrupt),
    }
    Err(refused)
}

/// As [`import_met`], whatever the values in the memory are.
fn import_memory(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    known: &TypeFacts,
    handed_out: HandedOut,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Fault> {
    let HandedOut { taken, table } = handed_out;
    if let Some(taken) = taken {
        let by_capsule = to.receive_taken(taken).map_err(|error| of(object, error))?;
        let protocol = if table.is_some() { Protocol::Exchange } else { by_capsule };
        if is_ordered(to, object, &known.method, table, stream)? {
            return Ok(protocol);
        }
    }
    import_asked(to, object, &known.method, stream)
}

/// Whether the array that came without a word about streams can be used on ours; otherwise it is given back.
fn is_ordered(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    table: Option<Table>,
    stream: Option<StreamHandle>,
) -> PyResult<bool> {
    if to.import.facts().device() == Device::CPU {
        return Ok(true);
    }
    match table {
        Some(table) if order_by_table(to, object, table, stream)? => return Ok(true),
        Some(_) => {}
        None => method.usual_device.give_up(),
    }
    *to.import = Import::NOTHING;
    Ok(false)
}

/// As [`import_to`], by the methods and attributes that the object has.
fn import_asked(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Fault> {
    if method.has_method {
        match from_method(to, object, method, stream) {
            Err(Fault::Raised(error)) if lacks_method(object, &error)? => {}
            answer => return answer,
        }
    } else if has_method(object)? {
        return from_method(to, object, method, stream);
    }
    Ok(from_cai(to, object, stream)?.ok_or_else(|| no_array(object))?)
}

/// Orders a tensor of the exchange table, which orders nothing itself: work on the stream that its library says is ordered
/// here. Where it says none, nothing is taken: `__dlpack__` is asked, which is told our stream.
fn order_by_table(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    table: Table,
    stream: Option<StreamHandle>,
) -> PyResult<bool> {
    let device = to.import.facts().device();
    let Some(current) = work_stream(table, object.py(), device) else { return Ok(false) };
    let consumer = stream.unwrap_or(StreamHandle::LegacyDefault);
    cuda::order(current, consumer, device).map_err(|error| of(object, error))?;
    to.import.put_on_stream(consumer);
    Ok(true)
}

/// Through `__dlpack__`, which is told the stream of our work where the memory has one.
fn from_method(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Fault> {
    // A class that promised host memory has been asked for it.
    if let Some(usual) = method.usual_device.device().filter(|usual| *usual != Device::CPU) {
        if let Some(protocol) = from_usual_place(to, object, method, stream, usual)? {
            return Ok(protocol);
        }
        method.usual_device.give_up();
        *to.import = Import::NOTHING;
    }
    from_anywhere(to, object, method, stream)
}

/// As [`from_method`], of a class of which it is not known where its arrays are.
fn from_anywhere(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
) -> Result<Protocol, Fault> {
    let py = object.py();
    let said = object.call_method0(pyo3::intern!(py, "__dlpack_device__"))?;
    let said = device(&said, "__dlpack_device__").map_err(|fault| fault.of(object))?;
    let named = |error| of(object, error);
    // Before a capsule is asked for: other kinds of device have other rules about streams.
    said.check().map_err(named)?;
    let consumer = method.consumer(stream, said);
    // Producers look at the device that is current, and the default streams are those of its context.
    let _entered = cuda::current_while(said).map_err(named)?;
    let (capsule, told) = request_for(object, method, consumer, said)?;
    let protocol = from_capsule(to, object, capsule)?;
    let found = to.import.facts().device();
    if !same_memory(said, found) {
        let place = "__dlpack_device__";
        let allowed = format!("{found}, which its capsule says");
        return Err(named(Error::new(ErrorKind::Device, place, said, allowed)).into());
    }
    if told == Some(consumer) {
        method.usual_device.note(found);
    } else if found != Device::CPU && cuda::is_available() {
        // No stream works on what is the host's alone, as PyTorch calls pinned memory in its capsules; nor without a driver.
        free_without_lock();
        match told {
            Some(told) => cuda::order(told, consumer, found),
            None => cuda::order_unstated(consumer, found),
        }
        .map_err(named)?;
    }
    to.import.put_on_stream(consumer);
    Ok(protocol)
}

/// As [`from_method`], of a class whose arrays have always been on this device; `None` when this one is not, or when it
/// does not take our stream.
#[cold]
fn from_usual_place(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    method: &DlpackMethod,
    stream: Option<StreamHandle>,
    usual: Device,
) -> Result<Option<Protocol>, Fault> {
    let consumer = method.consumer(stream, usual);
    let _entered = cuda::current_while(usual).map_err(|error| of(object, error))?;
    let capsule = match request(object, method, consumer.to_dlpack(usual.device_type)) {
        Ok(capsule) => capsule,
        // The array may be where other streams are taken.
        Err(error) if error.is_instance_of::<PyException>(object.py()) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let protocol = from_capsule(to, object, capsule)?;
    if to.import.facts().device() != usual {
        return Ok(None);
    }
    to.import.put_on_stream(consumer);
    Ok(Some(protocol))
}

/// Whether two statements about a device agree. Libraries name pinned and managed memory one way in
/// `__dlpack_device__` and another in the capsule, so the host kinds are one.
fn same_memory(said: Device, found: Device) -> bool {
    said.normalized() == found
        || (said.device_type.is_host_accessible() && found.device_type.is_host_accessible())
}

/// Through the interface dict, if there is one: the driver says where the address is, and the producer's stream is ordered
/// before ours.
fn from_cai(
    to: &mut Destination<'_>,
    object: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
) -> PyResult<Option<Protocol>> {
    let name = pyo3::intern!(object.py(), "__cuda_array_interface__");
    let Some(interface) = attribute(object, name)? else { return Ok(None) };
    // Both: a property may make a fresh array, which nothing but the dict that it returns keeps alive.
    let owner = [object, &interface].map(|held| PyOwner::new(held.clone().unbind()));
    let interface = interface_in(&interface).map_err(|fault| fault.of(object))?;
    let consumer = stream.unwrap_or(StreamHandle::LegacyDefault);
    free_without_lock();
    // SAFETY: the object vouches for the memory that it describes, as long as it lives, and for its stream now.
    let import = unsafe { Import::from_cai_for(&interface, consumer, owner) };
    *to.import = import.map_err(|error| of(object, error))?;
    Ok(Some(Protocol::Cai))
}
