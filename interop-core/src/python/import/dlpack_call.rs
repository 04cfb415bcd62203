//! How `__dlpack__` is called: with which stream and version, and what is tried when a producer takes less.
#![expect(unsafe_code, reason = "calls a method as what was found for a type says")]

use core::iter::successors;
use core::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::{PyAttributeError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::array::device::{Device, DeviceType};
use crate::array::stream::StreamHandle;
use crate::protocols::dlpack::abi::{MAJOR_VERSION, MINOR_VERSION};
use crate::python::import::direct_call::DirectCall;
use crate::python::interpreter::{attribute, call_with_keywords};

/// How the `__dlpack__` of a type is asked.
pub(crate) struct DlpackMethod {
    /// Whether the class has the method, so that no object has to be asked whether it has one.
    pub(crate) has_method: bool,
    /// Whether it knows that the stream -1 asks for no order.
    takes_unordered: bool,
    /// Where its arrays are.
    pub(crate) expected_device: ExpectedDevice,
    /// Whether its objects may have an interface dict that says who may write, where a legacy capsule cannot.
    pub(crate) has_writable_dict: bool,
    /// The function behind it, of a type that cannot change.
    direct: Option<DirectCall>,
}

/// What is known of a library whose classes are found by the name of their package.
struct Library {
    package: &'static str,
    takes_unordered: bool,
}

/// Libraries of which `__dlpack_device__` and the capsule always say the same, so that the one need not be asked where the
/// other will tell. The question costs as much as the capsule there, and more in JAX.
///
/// JAX hands the stream -1 to the driver as a handle (`NVIDIA/cuda-python#285`). Nothing in its behaviour tells that before
/// it is too late: a handle that is none can end the process. Who is not in the list and refuses -1 with an error is asked
/// once more.
const LIBRARIES: [Library; 3] = [
    Library { package: "jaxlib", takes_unordered: false },
    Library { package: "jax", takes_unordered: false },
    Library { package: "cupy", takes_unordered: true },
];

impl DlpackMethod {
    /// For a class of this module. `host_only`: its arrays are in host memory by definition.
    pub(crate) fn new(module: &str, has_method: bool, host_only: bool, direct: Option<DirectCall>) -> Self {
        let package = module.split('.').next().unwrap_or_default();
        let library = LIBRARIES.iter().find(|library| library.package == package);
        let takes_unordered = library.is_none_or(|library| library.takes_unordered);
        let expected_device = match library {
            _ if host_only => ExpectedDevice::of(ExpectedDevice::packed(Device::CPU)),
            Some(_) => ExpectedDevice::new(),
            None => ExpectedDevice::of(ExpectedDevice::NONE),
        };
        // Arrays of JAX do not change, and NumPy before 2.1 has always counted as read-only.
        let has_writable_dict = !host_only && !matches!(package, "jax" | "jaxlib");
        Self { has_method, takes_unordered, expected_device, has_writable_dict, direct }
    }

    /// The stream that arrays of a device are asked for.
    pub(crate) fn consumer(&self, stream: Option<StreamHandle>, device: Device) -> StreamHandle {
        match (stream, device.device_type) {
            (_, DeviceType::CPU) => StreamHandle::NothingPending,
            // Ordered more than was asked for, because this producer takes -1 for the handle of a stream.
            (Some(StreamHandle::NothingPending), _) if !self.takes_unordered => StreamHandle::LegacyDefault,
            (stream, _) => stream.unwrap_or(StreamHandle::LegacyDefault),
        }
    }
}

/// The one device on which all arrays of a class have been, if that says something about the next.
///
/// The next one is asked for its capsule as an array of that device is asked. The capsule says if it is on another, and
/// then it is asked everything, as are all arrays of its class from then on.
pub(crate) struct ExpectedDevice(AtomicU64);

impl ExpectedDevice {
    /// No array has come yet.
    const NEW: u64 = Self::packed(Device::UNKNOWN);
    /// The arrays are in several places, or in unknown ones: a device that does not exist.
    const NONE: u64 = !Self::NEW;

    /// Of a class of which no array has come yet.
    pub(crate) fn new() -> Self {
        Self::of(Self::NEW)
    }

    fn of(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }

    #[expect(clippy::cast_sign_loss, reason = "the bits are what counts")]
    const fn packed(device: Device) -> u64 {
        let Device { device_type, device_id } = device;
        ((device_type.0 as u64) << 32) | (device_id as u64 & 0xffff_ffff)
    }

    /// Where the next array is, if that is known.
    #[expect(clippy::cast_possible_truncation, reason = "each half is cut out of the word")]
    pub(crate) fn device(&self) -> Option<Device> {
        let word = self.0.load(Ordering::Relaxed);
        let (device_type, device_id) = (DeviceType((word >> 32) as i32), word as i32);
        (word != Self::NEW && word != Self::NONE).then_some(Device { device_type, device_id })
    }

    /// An array was there, as everybody said.
    pub(crate) fn note(&self, device: Device) {
        // Libraries call the other kinds of memory by several names.
        let plain = matches!(device.device_type, DeviceType::CPU | DeviceType::CUDA);
        let word = if plain { Self::packed(device) } else { Self::NONE };
        // Only the first one counts.
        let _ = self.0.compare_exchange(Self::NEW, word, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// An array was where none was before.
    pub(crate) fn give_up(&self) {
        self.0.store(Self::NONE, Ordering::Relaxed);
    }
}

/// The capsule of an object whose work comes before `consumer`, and the stream that it was told. Some producers do not take
/// every stream that their device has: they are asked once more, for less, and the rest of the order is up to the caller.
pub(crate) fn call_dlpack_for<'py>(
    object: &Bound<'py, PyAny>,
    method: &DlpackMethod,
    consumer: StreamHandle,
    device: Device,
) -> PyResult<(Bound<'py, PyAny>, Option<StreamHandle>)> {
    let first = match call_dlpack(object, method, consumer.to_dlpack(device.device_type)) {
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
    match call_dlpack(object, method, less.and_then(|stream| stream.to_dlpack(device.device_type))) {
        Ok(capsule) => Ok((capsule, less)),
        // What the producer said of the stream that was meant, unless this is no answer but an interrupt.
        Err(second) if second.is_instance_of::<PyException>(object.py()) => Err(first),
        Err(second) => Err(second),
    }
}

/// Whether the object has a `__dlpack__`; `None` in its place says that there is none, as with all special methods.
pub(crate) fn has_method(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let method = attribute(object, pyo3::intern!(object.py(), "__dlpack__"))?;
    Ok(method.is_some_and(|method| !method.is_none()))
}

/// Whether this error, of a call of `__dlpack__`, says that there is none: a class may lose a method, or keep it from some
/// of its objects, or have `None` in its place, which cannot be called.
#[cold]
pub(crate) fn lacks_method(object: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
    let py = object.py();
    let may_lack = error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyTypeError>(py);
    if !may_lack {
        return Ok(false);
    }
    match has_method(object) {
        Ok(has) => Ok(!has),
        // Who raises again has said why the first time.
        Err(again) if again.is_instance_of::<PyException>(py) => Ok(false),
        Err(interrupt) => Err(interrupt),
    }
}

/// Calls `__dlpack__`, first as the current standard has it, then as producers of an older one take it.
#[inline(always)]
pub(crate) fn call_dlpack<'py>(
    object: &Bound<'py, PyAny>,
    method: &DlpackMethod,
    stream: Option<i128>,
) -> PyResult<Bound<'py, PyAny>> {
    static WORDS: PyOnceLock<Words> = PyOnceLock::new();
    let py = object.py();
    let words = WORDS.get_or_try_init(py, || Words::new(py))?;
    let version = words.version.bind(py).as_any();
    let first = match stream {
        None => call(object, method, words, &words.without_stream, [version]),
        Some(stream) => {
            // Without CPython's own functions a number of 128 bits takes eight calls.
            let stream = match i64::try_from(stream) {
                Ok(stream) => stream.into_pyobject(py)?,
                Err(_) => stream.into_pyobject(py)?,
            };
            call(object, method, words, &words.with_stream, [version, stream.as_any()])
        }
    };
    first.or_else(|error| call_with_fewer_keywords(object, stream, error))
}

/// Calls `__dlpack__` with one keyword argument for each of `names`.
#[inline]
fn call<'py, const N: usize>(
    object: &Bound<'py, PyAny>,
    method: &DlpackMethod,
    words: &Words,
    names: &Py<PyTuple>,
    values: [&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    let names = names.bind(object.py());
    match method.direct {
        // SAFETY: what is asked is what was found for the object's type.
        Some(direct) => unsafe { direct.call(object, names, values) },
        None => call_with_keywords(object, words.method.bind(object.py()), names, values),
    }
}

/// As [`call_dlpack`], of a producer that answered with `first` to the keywords of the current standard.
///
/// It is asked again only when the first call failed over its keywords, so that no error of the producer's is hidden.
#[cold]
fn call_with_fewer_keywords<'py>(
    object: &Bound<'py, PyAny>,
    stream: Option<i128>,
    first: PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    /// Those of a producer may go round by themselves.
    const MOST_CAUSES: usize = 64;
    let py = object.py();
    if !is_about_keywords(py, &first) {
        return Err(first);
    }
    let keywords = PyDict::new(py);
    if let Some(stream) = stream {
        keywords.set_item(pyo3::intern!(py, "stream"), stream)?;
    }
    object.call_method(pyo3::intern!(py, "__dlpack__"), (), Some(&keywords)).inspect_err(|error| {
        // A producer may keep its exceptions and raise them each time; nothing is its own cause, at any distance.
        let mut causes = successors(Some(first.clone_ref(py)), |error| error.cause(py)).take(MOST_CAUSES);
        if error.cause(py).is_none() && !causes.any(|cause| cause.value(py).is(error.value(py))) {
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
/// nanobind; a `TypeError` about anything else is the producer's own, also one about a keyword that we did not pass.
fn is_about_keywords(py: Python<'_>, error: &PyErr) -> bool {
    // Others are not even asked for their text, which is somebody's code.
    if !error.is_instance_of::<PyTypeError>(py) {
        return false;
    }
    let text = error.value(py).to_string();
    let says = |words: &str| text.contains(words);
    if says("max_version") || says("incompatible function arguments") {
        return true;
    }
    // The name stands in quotes.
    let names_one = says("'") && (says("unexpected keyword") || says("invalid keyword"));
    says("keyword") && !says("missing") && (!names_one || says("stream"))
}
