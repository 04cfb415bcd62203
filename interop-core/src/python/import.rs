//! Any object that speaks a protocol, as an [`Import`].
#![expect(unsafe_code, reason = "believes what an object says of its memory")]

use pyo3::exceptions::{PyAttributeError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::capsule::{Taken, take};
use super::device::{device, integer};
use super::dict::interface_of;
use super::errors::{no_array, origin};
use super::exchange::{tensor_of, work_stream};
use super::interpreter::call_with_keywords;
use super::release::{PyOwner, To, drain};
use super::types::{Asked, Table, with_type};
use crate::array::FromArray;
use crate::arrival::Arrival;
use crate::cuda::{self, Trust};
use crate::device::{Device, DeviceType};
use crate::dlpack::{MAJOR_VERSION, MINOR_VERSION};
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
/// `__dlpack__` is preferred to `__cuda_array_interface__`. The producer is told the stream where its memory has one:
/// nothing for CPU memory, a number otherwise, the legacy default stream if `stream` is `None`.
///
/// # Errors
///
/// `TypeError` for an object that speaks neither protocol; `ArrayError` (a `BufferError` and a `ValueError`) for an array
/// that cannot be used, with its class in the text; what the producer raises is passed on as it is.
pub fn import(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Imported> {
    import_with(object, stream, Trust::Nothing)
}

/// As [`import`], but what a DLPack tensor says of its memory is believed: the driver is not asked where the address is and
/// how far the allocation goes, which saves one call for memory of CUDA. An interface dict says too little to be believed.
///
/// # Errors
///
/// As [`import`], for what can be seen without the driver.
///
/// # Safety
///
/// The object tells the truth about the device and the extent of its memory. Objects of a library that is known to do so
/// are the only ones to be imported this way.
pub unsafe fn import_trusted(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Imported> {
    import_with(object, stream, Trust::Memory)
}

fn import_with(object: &Bound<'_, PyAny>, stream: Option<StreamHandle>, trust: Trust) -> PyResult<Imported> {
    let mut import = Import::nothing();
    let protocol = import_to(&mut To { import: &mut import, trust }, object, stream)?;
    Ok(Imported { import, protocol })
}

/// As [`import`], to where the array will stay.
fn import_to(to: &mut To<'_>, object: &Bound<'_, PyAny>, stream: Option<StreamHandle>) -> PyResult<Protocol> {
    let py = object.py();
    drain(py);
    let (table, asked) = with_type(object, |known| (known.exchange, known.asked))?;
    if let Some(table) = table {
        if from_table(to, object, table, stream)? {
            return Ok(Protocol::Exchange);
        }
    }
    if asked.host_only || attribute(object, pyo3::intern!(py, "__dlpack__"))?.is_some() {
        return from_method(to, object, asked, stream);
    }
    if let Some(interface) = attribute(object, pyo3::intern!(py, "__cuda_array_interface__"))? {
        return from_cai(to, object, &interface, stream);
    }
    Err(no_array(object))
}

/// A stream as a Python caller names it: an int (1, 2 or a handle; -1 for no ordering), or an object with
/// `__cuda_stream__`, which every library's stream class has.
///
/// # Errors
///
/// `ArrayError` for numbers that are no stream, `TypeError` for other objects.
pub fn consumer_stream(stream: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    let py = stream.py();
    if let Some(method) = attribute(stream, pyo3::intern!(py, "__cuda_stream__"))? {
        // The protocol's version, which is 0, and the handle.
        let (version, handle) = method.call0()?.extract::<(i64, usize)>()?;
        if version != 0 {
            return Err(Error::new(ErrorKind::Version, "__cuda_stream__", version, "version 0").into());
        }
        return Ok(StreamHandle::from_raw(handle));
    }
    let number = integer(stream, "stream")?;
    Ok(StreamHandle::from_dlpack(DeviceType::CUDA, Some(number))?)
}

/// Imports the tensor in a capsule that an older interface handed out, which is consumed.
///
/// The capsule carries no stream: the caller has ordered the work on it.
///
/// # Errors
///
/// `TypeError` for an object that is no capsule; `ArrayError` for a capsule of another name, such as one that was
/// consumed, and for an array that cannot be used.
pub fn import_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Imported> {
    let mut import = Import::nothing();
    let mut to = To { import: &mut import, trust: Trust::Nothing };
    let protocol = from_capsule(&mut to, capsule, capsule)?;
    Ok(Imported { import, protocol })
}

/// The value of an attribute; `None` if the object has none. An exception in a property is not "none".
fn attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match object.getattr(name) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Through the exchange table of the type. It orders nothing: work on the stream that its library says is ordered here,
/// and where it says none, nothing is taken: `__dlpack__` is asked, which is told our stream.
fn from_table(
    to: &mut To<'_>,
    object: &Bound<'_, PyAny>,
    table: Table,
    stream: Option<StreamHandle>,
) -> PyResult<bool> {
    let Some(tensor) = tensor_of(table, object)? else { return Ok(false) };
    let named = |error: Error| error.with_origin(origin(object));
    to.receive(tensor).map_err(named)?;
    let device = to.import.facts().device();
    if device.device_type == DeviceType::CPU {
        return Ok(true);
    }
    let Some(current) = work_stream(table, object.py(), device) else {
        *to.import = Import::nothing();
        return Ok(false);
    };
    let consumer = stream.unwrap_or(StreamHandle::LegacyDefault);
    cuda::order(current, consumer, device).map_err(named)?;
    to.import.put_on_stream(consumer);
    Ok(true)
}

/// Through `__dlpack__`, which is told the stream of our work where the memory has one.
fn from_method(
    to: &mut To<'_>,
    object: &Bound<'_, PyAny>,
    asked: Asked,
    stream: Option<StreamHandle>,
) -> PyResult<Protocol> {
    if asked.host_only {
        let protocol = from_capsule(to, object, &request(object, None)?)?;
        if to.import.facts().device().device_type == DeviceType::CPU {
            return Ok(protocol);
        }
        // The class promised host memory and broke it; it is asked like any other.
        *to.import = Import::nothing();
    }
    let py = object.py();
    let said = device(&object.call_method0(pyo3::intern!(py, "__dlpack_device__"))?, "__dlpack_device__")?;
    // Before a capsule is asked for: other kinds of device have other rules about streams.
    said.check().map_err(|error| error.with_origin(origin(object)))?;
    let consumer = match (stream, said.device_type) {
        (_, DeviceType::CPU) => StreamHandle::NothingPending,
        // Ordered more than was asked for, because this producer takes -1 for the handle of a stream.
        (Some(StreamHandle::NothingPending), _) if !asked.takes_unordered => StreamHandle::LegacyDefault,
        (Some(stream), _) => stream,
        (None, _) => StreamHandle::LegacyDefault,
    };
    // Producers look at the device that is current, and the default streams are those of its context.
    let _entered = cuda::current_while(said).map_err(|error| error.with_origin(origin(object)))?;
    let named = |error: Error| error.with_origin(origin(object));
    let (capsule, told) = request_for(object, consumer, said)?;
    let protocol = from_capsule(to, object, &capsule)?;
    let found = to.import.facts().device();
    if !same_memory(said, found) {
        let place = "__dlpack_device__";
        let allowed = format!("{found}, which its capsule says");
        return Err(named(Error::new(ErrorKind::Device, place, said, allowed)).into());
    }
    // Without a driver no work can be pending.
    if told != Some(consumer) && cuda::is_available() {
        match told {
            Some(told) => cuda::order(told, consumer, found),
            None => cuda::order_unstated(consumer, found),
        }
        .map_err(named)?;
    }
    to.import.put_on_stream(consumer);
    Ok(protocol)
}

/// The capsule of an object whose work comes before `consumer`, and the stream that it was told. Some producers do not take
/// every stream that their device has: they are asked once more, for less, and the rest of the order is up to the caller.
fn request_for<'py>(
    object: &Bound<'py, PyAny>,
    consumer: StreamHandle,
    device: Device,
) -> PyResult<(Bound<'py, PyAny>, Option<StreamHandle>)> {
    let first = match request(object, consumer.to_dlpack(device.device_type)) {
        Ok(capsule) => return Ok((capsule, Some(consumer))),
        Err(error) => error,
    };
    let less = match (consumer, device.device_type) {
        (_, DeviceType::CPU) => return Err(first),
        // PyTorch and Warp take pinned memory for the host's, which has no streams.
        (_, DeviceType::CUDA_HOST) => None,
        // PyTorch has no per-thread default streams, and JAX takes -1 for a handle.
        (StreamHandle::PerThreadDefault | StreamHandle::NothingPending, _) => {
            Some(StreamHandle::LegacyDefault)
        }
        _ => return Err(first),
    };
    if !first.is_instance_of::<PyException>(object.py()) {
        return Err(first);
    }
    match request(object, less.and_then(|stream| stream.to_dlpack(device.device_type))) {
        Ok(capsule) => Ok((capsule, less)),
        // What the producer said of the stream that was meant, unless this is no answer but an interrupt.
        Err(second) if second.is_instance_of::<PyException>(object.py()) => Err(first),
        Err(second) => Err(second),
    }
}

/// The tensor in a capsule that `object` handed out.
fn from_capsule(
    to: &mut To<'_>,
    object: &Bound<'_, PyAny>,
    capsule: &Bound<'_, PyAny>,
) -> PyResult<Protocol> {
    let (imported, protocol) = match take(capsule)? {
        Taken::Versioned(tensor) => (to.receive(tensor), Protocol::DlpackVersioned),
        Taken::Legacy(tensor) => (to.receive(tensor), Protocol::Dlpack),
    };
    imported.map_err(|error| error.with_origin(origin(object)))?;
    Ok(protocol)
}

/// Whether two statements about a device agree. Libraries name pinned and managed memory one way in
/// `__dlpack_device__` and another in the capsule, so the host kinds are one.
fn same_memory(said: Device, found: Device) -> bool {
    said.normalized() == found
        || (said.device_type.is_host_accessible() && found.device_type.is_host_accessible())
}

/// Calls `__dlpack__`, first as the current standard has it, then as producers of an older one take it.
///
/// The second call is made only when the first failed over its keywords, so that no error of the producer's is hidden.
fn request<'py>(object: &Bound<'py, PyAny>, stream: Option<i128>) -> PyResult<Bound<'py, PyAny>> {
    static WORDS: PyOnceLock<Words> = PyOnceLock::new();
    let py = object.py();
    let words = WORDS.get_or_try_init(py, || Words::new(py))?;
    let (method, version) = (words.method.bind(py), words.version.bind(py).as_any());
    let first = match stream {
        None => call_with_keywords(object, method, words.without_stream.bind(py), [version]),
        Some(stream) => {
            let stream = stream.into_pyobject(py)?;
            call_with_keywords(object, method, words.with_stream.bind(py), [version, stream.as_any()])
        }
    };
    match first {
        Ok(capsule) => Ok(capsule),
        Err(error) if is_about_keywords(py, &error) => request_plainly(object, stream, error),
        Err(error) => Err(error),
    }
}

/// As [`request`], of a producer that answered with `first` to the keywords of the current standard.
#[cold]
fn request_plainly<'py>(
    object: &Bound<'py, PyAny>,
    stream: Option<i128>,
    first: PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let keywords = PyDict::new(py);
    if let Some(stream) = stream {
        keywords.set_item(pyo3::intern!(py, "stream"), stream)?;
    }
    object.call_method(pyo3::intern!(py, "__dlpack__"), (), Some(&keywords)).inspect_err(|error| {
        if error.cause(py).is_none() {
            error.set_cause(py, Some(first));
        }
    })
}

/// What a call of `__dlpack__` consists of, made once.
struct Words {
    method: Py<PyString>,
    version: Py<PyTuple>,
    without_stream: Py<PyTuple>,
    with_stream: Py<PyTuple>,
}

impl Words {
    fn new(py: Python<'_>) -> PyResult<Self> {
        let (stream, version) = (PyString::intern(py, "stream"), PyString::intern(py, "max_version"));
        Ok(Self {
            method: PyString::intern(py, "__dlpack__").unbind(),
            version: PyTuple::new(py, [MAJOR_VERSION, MINOR_VERSION])?.unbind(),
            without_stream: PyTuple::new(py, [&version])?.unbind(),
            with_stream: PyTuple::new(py, [&version, &stream])?.unbind(),
        })
    }
}

/// Whether a call failed because the callee does not know a keyword. The texts are those of Python, Cython, pybind11 and
/// nanobind; a `TypeError` about anything else is the producer's own.
#[cold]
fn is_about_keywords(py: Python<'_>, error: &PyErr) -> bool {
    let text = error.value(py).to_string();
    error.is_instance_of::<PyTypeError>(py)
        && (text.contains("keyword")
            || text.contains("max_version")
            || text.contains("incompatible function arguments"))
}

/// Through the interface dict: the driver says where the address is, and the producer's stream is ordered before ours.
fn from_cai(
    to: &mut To<'_>,
    object: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyAny>,
    stream: Option<StreamHandle>,
) -> PyResult<Protocol> {
    // Both: a property may make a fresh array, which nothing but the dict that it returns keeps alive.
    let owner = [object, interface].map(|held| PyOwner::new(held.clone().unbind()));
    let interface = interface_of(interface)?;
    let consumer = stream.unwrap_or(StreamHandle::LegacyDefault);
    // SAFETY: the object vouches for the memory that it describes, as long as it lives, and for its stream now.
    let import = unsafe { Import::from_cai_for(&interface, consumer, owner) };
    *to.import = import.map_err(|error| error.with_origin(origin(object)))?;
    Ok(Protocol::Cai)
}

/// Imports any object as a derived struct: what `#[cuda_array(python)]` does with an argument, for whoever does it by hand,
/// such as a `#[new]` method of a class.
///
/// # Errors
///
/// As [`import`], and `ArrayError` for an array that is not what the struct wants.
pub fn import_as<T: FromArray>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let mut arrival = Arrival::new(Import::nothing());
    let mut to = To { import: arrival.place(), trust: Trust::Nothing };
    import_to(&mut to, object, None)?;
    T::assemble(&mut arrival).map_err(|error| error.with_origin(origin(object)).into())
}
