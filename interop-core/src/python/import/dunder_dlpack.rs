//! Calls `__dlpack__` with a stream and a version, and retries with fewer arguments for producers that accept less.
#![expect(unsafe_code, reason = "calls a method as what was found for a type says")]

use core::cell::Cell;
use core::mem::transmute;

use pyo3::exceptions::{PyAttributeError, PyException, PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::array::device::{Device, DeviceType};
use crate::array::stream::StreamHandle;
use crate::protocols::dlpack::abi::{MAJOR_VERSION, MINOR_VERSION};
use crate::python::errors::set_first_cause;
use crate::python::import::package::Package;
use crate::python::interpreter::{attribute, call_with_keywords};

/// How to call the `__dlpack__` of a type.
#[expect(clippy::struct_excessive_bools, reason = "properties that do not depend on each other")]
pub(crate) struct DlpackMethod {
    /// Whether the class has the method. Otherwise each object must be checked.
    pub(crate) has_method: bool,
    /// As [`Package::takes_unordered`].
    takes_unordered: bool,
    /// The device on which its arrays are expected.
    pub(crate) expected_device: ExpectedDevice,
    /// Whether its objects may have an interface dict that states whether memory is writable, for legacy capsules.
    pub(crate) has_writable_dict: bool,
    /// Whether the method is defined in C, by the class that also defines how its memory is lent as a buffer. A Python
    /// subclass that overrides the method does not intend the inherited buffer.
    pub(crate) is_native: bool,
    /// The C function of the method, for a type that cannot change.
    direct: Option<DirectCall>,
}

impl DlpackMethod {
    /// Creates the description for the class of an object. `method` is the attribute of the class. `host_only`: its arrays
    /// are in host memory by definition.
    pub(crate) fn new(
        object: &Bound<'_, PyAny>,
        package: Package,
        method: Option<&Bound<'_, PyAny>>,
        host_only: bool,
    ) -> Self {
        let expected_device = match package.states_one_device() {
            _ if host_only => Prediction::Device(Device::CPU),
            true => Prediction::New,
            false => Prediction::None,
        };
        let is_native = method.is_some_and(|method| is_method_of(method, &object.get_type()));
        Self {
            // A property may exist for some objects only.
            has_method: method.is_some_and(PyAnyMethods::is_callable),
            takes_unordered: package.takes_unordered(),
            expected_device: ExpectedDevice(Cell::new(expected_device)),
            // Arrays of JAX are immutable.
            has_writable_dict: package != Package::Jax,
            is_native,
            direct: method.filter(|_| is_native).and_then(|method| DirectCall::new(object, method)),
        }
    }

    /// Returns the stream to pass to arrays on `device`.
    pub(crate) fn consumer(&self, stream: Option<StreamHandle>, device: Device) -> StreamHandle {
        match (stream, device.device_type) {
            (_, DeviceType::CPU) => StreamHandle::NothingPending,
            // This waits for more than was requested, because the producer uses -1 as the handle of a stream.
            (Some(StreamHandle::NothingPending), _) if !self.takes_unordered => StreamHandle::LegacyDefault,
            (stream, _) => stream.unwrap_or(StreamHandle::LegacyDefault),
        }
    }
}

/// The device on which all arrays of a class have been so far, if it predicts that of the next one.
///
/// `__dlpack__` is called as for an array on that device. If the capsule states another device, the import starts again
/// with `__dlpack_device__`, and so do all later imports of the class.
pub(crate) struct ExpectedDevice(Cell<Prediction>);

#[derive(Clone, Copy)]
enum Prediction {
    /// No array has been imported yet.
    New,
    Device(Device),
    /// The device is not predicted, because there were several or it is unknown.
    None,
}

impl ExpectedDevice {
    /// Returns the expected device of the next array, if there is one.
    pub(crate) fn device(&self) -> Option<Device> {
        match self.0.get() {
            Prediction::Device(device) => Some(device),
            Prediction::New | Prediction::None => None,
        }
    }

    /// Records the device of an array. `__dlpack_device__` and the capsule have agreed on it.
    pub(crate) fn note(&self, device: Device) {
        if let Prediction::New = self.0.get() {
            // Libraries describe the other kinds of memory in different ways.
            let is_plain = matches!(device.device_type, DeviceType::CPU | DeviceType::CUDA);
            self.0.set(if is_plain { Prediction::Device(device) } else { Prediction::None });
        }
    }

    /// Records that an array was on an unexpected device.
    pub(crate) fn give_up(&self) {
        self.0.set(Prediction::None);
    }
}

/// Requests a capsule for work on `consumer`. Returns it with the stream that was passed.
///
/// Some producers do not accept every stream of their device. They are called again with another stream or none, and
/// the caller must then make `consumer` wait.
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
        // PyTorch and Warp describe pinned memory as host memory, which has no streams.
        (_, DeviceType::CUDA_HOST) => None,
        // PyTorch rejects per-thread default streams, and JAX uses -1 as a handle.
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
        // Returns the producer's error about the requested stream, unless the second one is not an `Exception`, such as
        // `KeyboardInterrupt`.
        Err(second) if second.is_instance_of::<PyException>(object.py()) => Err(first),
        Err(second) => Err(second),
    }
}

/// Returns whether the object has a `__dlpack__`. As for all special methods, `None` means that there is none.
pub(crate) fn has_method(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let method = attribute(object, pyo3::intern!(object.py(), "__dlpack__"))?;
    Ok(method.is_some_and(|method| !method.is_none()))
}

/// Returns whether this error of a `__dlpack__` call means that the object has no such method.
///
/// A class may lose the method, hide it from some objects, or set it to `None`, which is not callable.
#[cold]
pub(crate) fn lacks_method(object: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
    let py = object.py();
    let may_lack = error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyTypeError>(py);
    if !may_lack {
        return Ok(false);
    }
    match has_method(object) {
        Ok(has) => Ok(!has),
        // If the attribute raises again, the first error already explains why.
        Err(again) if again.is_instance_of::<PyException>(py) => Ok(false),
        Err(interrupt) => Err(interrupt),
    }
}

/// Calls `__dlpack__` with the keywords of the current standard, then with those of older ones.
#[inline(always)]
fn call_dlpack<'py>(
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
            // Without CPython's own functions, a conversion from 128 bits takes eight calls.
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
        // SAFETY: the method was found for the object's type.
        Some(direct) => unsafe { direct.call(object, names, values) },
        None => call_with_keywords(object, words.method.bind(object.py()), names, values),
    }
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
        keywords.set_item(pyo3::intern!(py, "stream"), stream)?;
    }
    object
        .call_method(pyo3::intern!(py, "__dlpack__"), (), Some(&keywords))
        .inspect_err(|error| set_first_cause(py, error, first))
}

/// The arguments of a `__dlpack__` call, created once.
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

/// The C function of a method of a static type.
///
/// A static type and its bases are immutable. If instances also have no dict, a lookup always finds the same method.
/// The lookup is a seventh of the time of an import from `NumPy`.
#[derive(Clone, Copy)]
pub(crate) struct DirectCall(ffi::PyCFunctionFastWithKeywords);

impl DirectCall {
    /// Returns this method of the object's type, if the type is immutable and the method uses the calling convention of
    /// [`call`](Self::call).
    fn new(object: &Bound<'_, PyAny>, method: &Bound<'_, PyAny>) -> Option<Self> {
        let class = object.get_type();
        if !has_fixed_attributes(&class) {
            return None;
        }
        Self::behind(&method.call_method1("__get__", (object, class)).ok()?, object)
    }

    /// Returns the C function of a bound method of the object.
    fn behind(method: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> Option<Self> {
        // SAFETY: the function accepts any object.
        if unsafe { ffi::PyCFunction_CheckExact(method.as_ptr()) } == 0 {
            return None;
        }
        // SAFETY: the check above found a C function. This applies to the next two calls too.
        let flags = unsafe { ffi::PyCFunction_GetFlags(method.as_ptr()) };
        // SAFETY: as above.
        let of = unsafe { ffi::PyCFunction_GetSelf(method.as_ptr()) };
        // SAFETY: as above.
        let function = unsafe { ffi::PyCFunction_GetFunction(method.as_ptr()) }?;
        if flags != ffi::METH_FASTCALL | ffi::METH_KEYWORDS || of != object.as_ptr() {
            return None;
        }
        // SAFETY: the flags state that the function has this type.
        Some(Self(unsafe { transmute::<ffi::PyCFunction, ffi::PyCFunctionFastWithKeywords>(function) }))
    }

    /// Calls the method with one keyword argument for each of `names`.
    ///
    /// # Errors
    ///
    /// Exceptions that the method raises.
    ///
    /// # Safety
    ///
    /// The type of the object is exactly the one that was passed to [`new`](Self::new).
    #[inline]
    pub(crate) unsafe fn call<'py, const N: usize>(
        self,
        object: &Bound<'py, PyAny>,
        names: &Bound<'py, PyTuple>,
        values: [&Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        let arguments = values.map(Bound::as_ptr);
        // SAFETY: the function is a method of the object's type, as the caller promises. There are no positional
        // arguments, and one live object for each name.
        let value = unsafe { self.0(object.as_ptr(), arguments.as_ptr(), 0, names.as_ptr()) };
        // SAFETY: the call returned a new reference, or null.
        let value = unsafe { Bound::from_owned_ptr_or_opt(py, value) };
        value.ok_or_else(|| failed(py))
    }
}

/// Returns whether a lookup finds the same attributes for all objects of a class, at any time: it is static, and its
/// objects have no dict.
pub(crate) fn has_fixed_attributes(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: the argument is a type.
    let changes = unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) } != 0;
    // SAFETY: the arguments are a type and the number of a slot that holds a function.
    let lookup = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_getattro) };
    let generic: unsafe extern "C" fn(_, _) -> _ = ffi::PyObject_GenericGetAttr;
    // A metaclass may override attribute lookups on the class.
    let plain = class.get_type().is(class.py().get_type::<PyType>());
    let dict = || class.getattr("__dictoffset__").and_then(|offset| offset.extract::<isize>());
    !changes && plain && lookup.addr() == generic as usize && dict().is_ok_and(|offset| offset == 0)
}

/// Returns whether an attribute is a method that was defined in C for the class or a base. Only such an attribute is
/// known to be the same function for every object.
fn is_method_of(attribute: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> bool {
    let descriptor = (&raw const ffi::PyMethodDescr_Type).cast_mut();
    if attribute.get_type_ptr() != descriptor {
        return false;
    }
    let owner = attribute.getattr("__objclass__");
    owner.is_ok_and(|owner| class.is_subclass(&owner).unwrap_or(false))
}

/// Returns the current exception, or a `SystemError` if none is set, as the interpreter does.
#[cold]
fn failed(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| PySystemError::new_err("a method failed and raised no exception"))
}
