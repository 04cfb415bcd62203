//! Imports by `__dlpack__`: calls it with a stream and a version, or with fewer arguments for producers that accept no more, and
//! takes the tensor from its capsule, which is renamed.
#![expect(unsafe_code, reason = "capsules hold raw pointers, and their destructors may raise exceptions")]

use core::ffi::CStr;
use core::ptr::NonNull;

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, intern};

use crate::array::device::{Device, DeviceType};
use crate::array::stream_handle::StreamHandle;
use crate::cuda;
use crate::driver::context::{Context, enter_device_context};
use crate::driver::functions::driver;
use crate::driver::pointer::reach_for;
use crate::driver::stream::Stream;
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::memory::import::{Filled, Import, ImportSlot};
use crate::order::memory_check::Verification;
use crate::order::wait::{Work, order};
use crate::protocols::dlpack::abi::{Legacy, MAJOR_VERSION, MINOR_VERSION, TensorAbi, Versioned};
use crate::protocols::dlpack::managed_tensor::{ManagedTensor, release};
use crate::python::capsule::share_record;
use crate::python::convert::device;
use crate::python::errors::{Failure, origin, set_first_cause, with_origin};
use crate::python::import::package::{CurrentStream, Package};
use crate::python::import::type_cache::{DlpackClass, ExpectedDevice, ImportRequest};
use crate::python::interpreter::{
    attribute, call_with_keywords, capsule_pointer, free_detached, is_attached, is_ordinary,
    release_deferred_refs, report_exception, with_saved_exception,
};

/// `__dlpack__`, with the consumer's stream if the memory has streams. The device is the expected one, or
/// that of `__dlpack_device__`.
///
/// Returns `None` if the object has no such method.
pub(crate) fn from_method(
    request: &ImportRequest<'_, '_>,
    class: &DlpackClass,
    slot: &mut ImportSlot,
) -> Result<Option<Filled>, Failure> {
    let object = request.object;
    if let ExpectedDevice::Device(expected) = class.expected_device.get() {
        match from_device(request, slot, expected, |expected, found| expected == found) {
            Ok(Arrival::Here(filled)) => return Ok(Some(filled)),
            // The array is on another device, or on one that accepts other streams.
            Ok(Arrival::Elsewhere(_)) => class.expected_device.set(ExpectedDevice::None),
            Err(Failure::Raised(error)) if expected == Device::CPU && lacks_method(object, &error)? => {}
            Err(Failure::Raised(error)) if expected != Device::CPU && is_ordinary(object.py(), &error) => {
                class.expected_device.set(ExpectedDevice::None);
            }
            Err(failure) => return Err(failure),
        }
        slot.clear();
    }
    if !class.has_method && !has_method(object)? {
        return Ok(None);
    }
    match from_stated_device(request, class, slot) {
        Err(Failure::Raised(error)) if class.has_method && lacks_method(object, &error)? => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Imports an array of a class whose device is not predicted: calls `__dlpack_device__` first.
fn from_stated_device(
    request: &ImportRequest<'_, '_>,
    class: &DlpackClass,
    slot: &mut ImportSlot,
) -> Result<Filled, Failure> {
    let object = request.object;
    let stated = object.call_method0(intern!(object.py(), "__dlpack_device__"))?;
    let stated = device(&stated, "__dlpack_device__").map_err(|failure| failure.with_origin(object))?;
    // Checked before the call of `__dlpack__`, because other device types have other rules about streams.
    stated.check()?;
    let filled = match from_device(request, slot, stated, same_memory)? {
        Arrival::Here(filled) => filled,
        Arrival::Elsewhere(found) => {
            let allowed = format!("{found}, as its capsule states");
            return Err(Error::new(ErrorKind::Device, "__dlpack_device__", stated, allowed).into());
        }
    };
    let found = slot.import(&filled).info().device();
    if let ExpectedDevice::New = class.expected_device.get() {
        // Libraries describe the other kinds of memory in different ways.
        let is_plain = matches!(found.device_type, DeviceType::CPU | DeviceType::CUDA);
        let expected = if is_plain { ExpectedDevice::Device(found) } else { ExpectedDevice::None };
        class.expected_device.set(expected);
    }
    Ok(filled)
}

/// Returns whether two statements about a device agree.
///
/// Libraries may describe pinned and managed memory differently in `__dlpack_device__` and in the capsule. So all kinds
/// of host-accessible memory count as the same.
fn same_memory(stated: Device, found: Device) -> bool {
    stated.normalized() == found
        || (stated.device_type.is_host_accessible() && found.device_type.is_host_accessible())
}

/// Whether an array is on the device for which `__dlpack__` was called.
enum Arrival {
    Here(Filled),
    Elsewhere(Device),
}

/// Calls `__dlpack__` as for an array on `device`. `agree` compares that with the one in the capsule.
fn from_device(
    request: &ImportRequest<'_, '_>,
    slot: &mut ImportSlot,
    device: Device,
    agree: fn(Device, Device) -> bool,
) -> Result<Arrival, Failure> {
    let object = request.object;
    let current = match request.stream {
        Some(_) => None,
        None => request.class.library.current_stream(object.py(), device)?,
    };
    // A library whose own stream is used from here on has nothing to order.
    let stream = current.as_ref().map_or(request.stream, |_| Some(StreamHandle::NothingPending));
    let consumer = match (stream, device.device_type) {
        (_, DeviceType::CPU) => StreamHandle::NothingPending,
        // JAX passes -1 to the driver as a handle (`NVIDIA/cuda-python#285`). This cannot be detected in advance, and an
        // invalid handle can crash the process. This waits for more than was requested. A library that rejects -1 with an
        // error is called again with another stream.
        (Some(StreamHandle::NothingPending), _) if request.class.library.package == Package::Jax => {
            StreamHandle::LegacyDefault
        }
        (stream, _) => stream.unwrap_or(StreamHandle::LegacyDefault),
    };
    // A producer that has to make a stream wait uses the current device, and the default streams are those of the current
    // context.
    let entered = match consumer {
        StreamHandle::NothingPending => None,
        _ => enter_device_context(device)?,
    };
    let Reply { capsule, stream } = call_dlpack_for(object, consumer, device)?;
    let filled = receive_capsule(slot, &capsule, request.verification);
    drop(capsule);
    // The destructor of a capsule must not raise an exception. If it does, it would surface in an unrelated call.
    // SAFETY: the thread is attached, because it holds a `Bound`.
    unsafe { report_exception() };
    let filled = filled?;
    let import = slot.import(&filled);
    let found = import.info().device();
    if !agree(device, found) {
        return Ok(Arrival::Elsewhere(found));
    }
    if stream != Some(consumer) && found != Device::CPU && cuda::is_available() {
        // The producer did not accept the consumer's stream, so this code makes it wait. CPU memory has no streams, but
        // `PyTorch` describes pinned memory as CPU memory in its capsules.
        free_detached();
        if let Some(stream) = stream {
            cuda::stream_wait(consumer, stream, found)?;
        } else {
            let work = Work::All(reach_for(driver()?, found));
            order(Stream::new(consumer, None, found).into(), work)?;
        }
    }
    put_on(request, import, current, consumer, entered.map(|entered| entered.context()))?;
    Ok(Arrival::Here(filled))
}

/// Puts an import on the stream on which its library works, or on the consumer's, which the library has made wait. For a
/// library that makes no stream wait, the consumer's stream waits for all work.
///
/// # Errors
///
/// As [`cuda::stream_wait`].
fn put_on(
    request: &ImportRequest<'_, '_>,
    import: &mut Import,
    current: Option<CurrentStream<'_>>,
    consumer: StreamHandle,
    context: Option<Context>,
) -> Result<(), Failure> {
    let device_type = import.info().device().device_type;
    // Host memory is used on no stream.
    if device_type == DeviceType::CPU {
        return Ok(());
    }
    if let Some(current) = current.filter(|_| device_type == DeviceType::CUDA) {
        current.put(import);
        return Ok(());
    }
    // These accept a stream and ignore it.
    let is_unordered =
        matches!(request.class.library.package, Package::TvmFfi | Package::Nanobind | Package::CudaCore);
    if is_unordered && consumer != StreamHandle::NothingPending {
        free_detached();
        import.make_wait_for_unknown(consumer)?;
    }
    import.put_on_ordered_stream(Stream::in_context_of(consumer, context), None);
    request.note_hidden_streams(import);
    Ok(())
}

/// What `__dlpack__` has returned, and the stream that it was passed.
struct Reply<'py> {
    capsule: Bound<'py, PyAny>,
    stream: Option<StreamHandle>,
}

/// Requests a capsule for work on `consumer`.
///
/// Some producers do not accept every stream of their device. They are called again with another stream or none, and
/// the caller must then make `consumer` wait.
fn call_dlpack_for<'py>(
    object: &Bound<'py, PyAny>,
    consumer: StreamHandle,
    device: Device,
) -> PyResult<Reply<'py>> {
    let first = match call_dlpack(object, consumer.to_dlpack(device.device_type)) {
        Ok(capsule) => return Ok(Reply { capsule, stream: Some(consumer) }),
        Err(error) => error,
    };
    let fallback = match (consumer, device.device_type) {
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
    match call_dlpack(object, fallback.and_then(|stream| stream.to_dlpack(device.device_type))) {
        Ok(capsule) => Ok(Reply { capsule, stream: fallback }),
        // Returns the producer's error about the requested stream, unless the second one is not an `Exception`, such as
        // `KeyboardInterrupt`.
        Err(second) if is_ordinary(object.py(), &second) => Err(first),
        Err(second) => Err(second),
    }
}

/// Returns whether the object has a `__dlpack__`. As for all special methods, `None` means that there is none.
fn has_method(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let method = attribute(object, intern!(object.py(), "__dlpack__"))?;
    Ok(method.is_some_and(|method| !method.is_none()))
}

/// Returns whether this error of a `__dlpack__` call means that the object has no such method.
///
/// A class may lose the method, hide it from some objects, or set it to `None`, which is not callable.
#[cold]
fn lacks_method(object: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
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

/// Fills a slot with the tensor of a capsule. The name of the capsule states the form of the tensor.
///
/// Ownership is taken before validation. Every path, including errors, releases the tensor exactly once.
pub(crate) fn receive_capsule(
    slot: &mut ImportSlot,
    capsule: &Bound<'_, PyAny>,
    verification: Verification,
) -> Result<Filled> {
    // SAFETY: the function accepts any object.
    if unsafe { ffi::PyCapsule_CheckExact(capsule.as_ptr()) } == 0 {
        let allowed =
            "a capsule named \"dltensor\" or \"dltensor_versioned\", which `__dlpack__` of an array returns";
        return Err(Error::new(ErrorKind::Type, "capsule", origin(capsule), allowed));
    }
    if let Some(tensor) = take::<Versioned>(capsule) {
        return receive(slot, tensor, verification);
    }
    let tensor = take::<Legacy>(capsule).ok_or_else(|| no_tensor(capsule))?;
    receive(slot, tensor, verification)
}

/// Takes the tensor from a capsule, if it has the unused name of this form, and renames the capsule in the same critical
/// section.
#[inline]
fn take<A: TensorAbi>(capsule: &Bound<'_, PyAny>) -> Option<ManagedTensor<A>> {
    with_critical_section(capsule, || {
        // SAFETY: the object is alive.
        let tensor = unsafe { capsule_pointer(capsule.as_ptr(), A::CAPSULE_NAME) }?;
        // SAFETY: the object is a capsule, and the name is static.
        unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), A::USED_CAPSULE_NAME.as_ptr()) };
        // SAFETY: the protocol states that a capsule of this name holds such a struct, and that whoever renames it owns the
        // struct.
        Some(unsafe { ManagedTensor::from_raw(tensor.as_ptr().cast()) })
    })
}

#[cold]
fn no_tensor(capsule: &Bound<'_, PyAny>) -> Error {
    // SAFETY: the object is a capsule.
    let name = unsafe { ffi::PyCapsule_GetName(capsule.as_ptr()) };
    // SAFETY: capsule names are C strings, which outlive their capsules.
    let name = (!name.is_null()).then(|| format!("{:?}", unsafe { CStr::from_ptr(name) }));
    let found = format!("a capsule named {}", name.as_deref().unwrap_or("NULL"));
    let allowed = "\"dltensor\" or \"dltensor_versioned\"; a capsule can be taken once";
    Error::new(ErrorKind::Capsule, "capsule", found, allowed)
}

/// Fills a slot with a tensor from Python. Releases the tensor on an error.
pub(crate) fn receive<A: TensorAbi>(
    slot: &mut ImportSlot,
    tensor: ManagedTensor<A>,
    verification: Verification,
) -> Result<Filled> {
    // SAFETY: `release_foreign::<A>` releases a struct of the form `A`, on any thread.
    let filled = unsafe { tensor.fill_slot(slot, release_foreign::<A>, verification) };
    filled.map_err(|Refused { value, error }| {
        // SAFETY: the error returned a struct of the form `A`, and nobody else releases it.
        unsafe { release_foreign::<A>(value.into_non_null()) };
        error
    })
}

/// Releases a foreign tensor. Its deleter can be Python code, so a pending exception is saved and restored.
///
/// # Safety
///
/// As [`release`].
pub(crate) unsafe fn release_foreign<A: TensorAbi>(tensor: NonNull<()>) {
    // SAFETY: as the caller promises.
    let release = || unsafe { release::<A>(tensor) };
    if is_attached() {
        // SAFETY: the thread is attached.
        unsafe { with_saved_exception(release) };
    } else {
        release();
    }
}

/// Imports the tensor of a capsule, for interfaces that pass capsules instead of arrays. Consumes the capsule.
///
/// A capsule contains no stream: the caller has made its work wait for the producer's.
///
/// # Errors
///
/// - `TypeError` for an object that is not a capsule.
/// - `ArrayError` for a capsule of another name, such as one that was consumed, and for an array that cannot be used.
///
/// ```no_run
/// use interop_core::python::import_capsule;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn nbytes(capsule: &Bound<'_, PyAny>) -> PyResult<usize> {
///     Ok(import_capsule(capsule)?.info().nbytes())
/// }
/// ```
pub fn import_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Import> {
    release_deferred_refs(capsule.py());
    share_record(capsule.py())?;
    let mut slot = ImportSlot::new();
    let filled = receive_capsule(&mut slot, capsule, Verification::Full);
    let filled = filled.map_err(|error| with_origin(capsule, error))?;
    Ok(slot.into_import(filled))
}
