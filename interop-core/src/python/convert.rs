//! Conversions of integers, device tuples and streams from Python objects.
#![expect(unsafe_code, reason = "takes Python's word for a stream")]

use core::fmt::Display;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple};

use crate::array::device::{Device, DeviceType};
use crate::array::stream_handle::StreamHandle;
use crate::error::{Error, ErrorKind, Result, text};
use crate::python::errors::{Failure, origin, with_length};
use crate::python::interpreter::{NestedCall, attribute};

/// Extracts an integer from any object with `__index__`, except a bool. `place` names the value in the error message.
///
/// # Errors
///
/// `TypeError` for other objects, `ArrayError` for an int of more than 128 bits. Exceptions of `__index__` are passed
/// on.
pub fn extract_integer(value: &Bound<'_, PyAny>, place: &str) -> PyResult<i128> {
    Ok(number(value, place)?)
}

/// As [`extract_integer`], for a value that belongs to an object whose class the message will name.
#[inline]
pub(crate) fn number(value: &Bound<'_, PyAny>, place: impl Display + Copy) -> Result<i128, Failure> {
    // The common case.
    if value.is_exact_instance_of::<PyInt>() {
        if let Ok(number) = value.extract::<i64>() {
            return Ok(number.into());
        }
    }
    any_number(value, place)
}

#[inline(never)]
fn any_number(value: &Bound<'_, PyAny>, place: impl Display + Copy) -> Result<i128, Failure> {
    let py = value.py();
    // A member of an enum of ints. Larger ints are handled below.
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        if let Ok(number) = value.extract::<i64>() {
            return Ok(number.into());
        }
    }
    let wrong = || Error::new(ErrorKind::Type, place, origin(value), "an int");
    if value.is_instance_of::<PyBool>() || is_numpy_bool(value) {
        return Err(wrong().into());
    }
    let _nested = NestedCall::enter()?;
    // As `operator.index` does: attributes of the object itself and operators that a subclass of `int` overrides have no
    // effect.
    // SAFETY: the object is alive, and the thread is attached.
    let index = unsafe { ffi::PyNumber_Index(value.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    let index = match unsafe { Bound::from_owned_ptr_or_err(py, index) } {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            if !value.get_type().hasattr(pyo3::intern!(py, "__index__"))? {
                return Err(wrong().into());
            }
            // The class has an `__index__`, whose exception tells why it failed.
            let wrong = PyErr::from(wrong());
            wrong.set_cause(py, Some(error));
            return Err(wrong.into());
        }
        index => index?,
    };
    index.extract::<i128>().map_err(|_| {
        Error::new(ErrorKind::Overflow, place, "an int of more than 128 bits", "an int of 64 bits at most")
            .into()
    })
}

/// Returns whether the value is a `NumPy` bool, which has `__index__` in older versions.
fn is_numpy_bool(value: &Bound<'_, PyAny>) -> bool {
    let class = value.get_type();
    class.name().is_ok_and(|name| name == "bool" || name == "bool_")
        && class.module().is_ok_and(|module| module == "numpy")
}

/// Extracts a device from a tuple `(device type, ordinal)`.
///
/// The items are ints, objects with `__index__`, or members of an `enum.Enum` that need not be ints: the array API
/// standard types the device as such an enum. The ordinal of host memory may be `None`, as `PaddlePaddle` writes it.
pub(crate) fn device(value: &Bound<'_, PyAny>, place: &str) -> Result<Device, Failure> {
    let tuple = pair(value, place, "(device type, ordinal)")?;
    let half = |at: usize| {
        let item = tuple.get_item(at)?;
        let item = if item.is_instance_of::<PyInt>() { item } else { value_of(item)? };
        let number = number(&item, place)?;
        i32::try_from(number)
            .map_err(|_| Failure::from(Error::new(ErrorKind::Device, place, number, "numbers of 32 bits")))
    };
    let device_type = DeviceType(half(0)?);
    let unnumbered = device_type.is_host_accessible() && tuple.get_borrowed_item(1)?.is_none();
    Ok(Device { device_type, device_id: if unnumbered { 0 } else { half(1)? } })
}

/// Returns the value of an enum member. Returns other objects unchanged.
#[cold]
fn value_of(item: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let class = item.py().import("enum")?.getattr("Enum")?;
    if item.is_instance(&class)? { item.getattr("value") } else { Ok(item) }
}

/// Casts to a tuple of length 2. The items are not checked. `what` names them in the error message.
pub(crate) fn pair<'a, 'py>(
    value: &'a Bound<'py, PyAny>,
    place: &str,
    what: &str,
) -> Result<&'a Bound<'py, PyTuple>> {
    value.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == 2).ok_or_else(|| {
        let allowed = text!("a tuple {what} of two ints");
        Error::new(ErrorKind::Type, place, with_length(value), allowed)
    })
}

/// Extracts a stream from a Python argument.
///
/// The argument is an int (1, 2 or a handle; -1 for no wait), or an object with `__cuda_stream__`. The stream classes
/// of most libraries have that method.
///
/// # Errors
///
/// `ArrayError` for numbers that are no stream, `TypeError` for other objects. Exceptions of `__cuda_stream__` are
/// passed on.
///
/// ```no_run
/// use interop_core::python::{extract_stream, import};
/// use pyo3::prelude::*;
///
/// /// `stream` may be `torch.cuda.Stream()`, `cupy.cuda.Stream()`, or `stream.ptr`.
/// #[pyfunction]
/// fn nbytes(array: &Bound<'_, PyAny>, stream: &Bound<'_, PyAny>) -> PyResult<usize> {
///     let imported = import(array, Some(extract_stream(stream)?))?;
///     Ok(imported.info().nbytes())
/// }
/// ```
pub fn extract_stream(stream: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    let _nested = NestedCall::enter()?;
    let py = stream.py();
    if let Some(method) = attribute(stream, pyo3::intern!(py, "__cuda_stream__"))? {
        // Before the method, the protocol had a property: in `cuda.core` until 0.2, and in libraries that followed it.
        return handle_of(&if method.is_instance_of::<PyTuple>() { method } else { method.call0()? });
    }
    let number = number(stream, "stream").map_err(|fault| match fault {
        Failure::Invalid(error) if error.kind() == ErrorKind::Type => {
            let allowed = "an int, or an object with `__cuda_stream__`";
            Error::new(ErrorKind::Type, "stream", origin(stream), allowed).into()
        }
        fault => fault,
    })?;
    // SAFETY: Python code cannot guarantee this; the protocol requires the caller to pass a live stream.
    let stream = unsafe { StreamHandle::from_dlpack(DeviceType::CUDA, Some(number)) };
    Ok(stream.map_err(|error| match number {
        // PyTorch's `stream.cuda_stream` is 0 for its default stream.
        0 => error.with_python_hint("pass 1 for the default stream, or the stream object itself"),
        _ => error,
    })?)
}

/// Decodes the result of `__cuda_stream__`: the version of the protocol, which is 0, and the handle.
fn handle_of(stated: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    const PLACE: &str = "__cuda_stream__";
    let pair = pair(stated, PLACE, "(version, handle)")?;
    let version = extract_integer(&pair.get_item(0)?, PLACE)?;
    if version != 0 {
        return Err(Error::new(ErrorKind::Version, PLACE, version, "version 0").into());
    }
    let handle = extract_integer(&pair.get_item(1)?, PLACE)?;
    match usize::try_from(handle) {
        // SAFETY: as for an int; objects with this method keep their streams alive.
        Ok(handle) => Ok(unsafe { StreamHandle::from_raw(handle) }),
        Err(_) => Err(Error::new(ErrorKind::Stream, PLACE, handle, "the address of a stream").into()),
    }
}

/// A stream that a function or a getter returned. It is a copy of the handle, and does not keep the stream alive.
#[pyclass(frozen, module = "interop_core")]
struct Stream(usize);

#[pymethods]
impl Stream {
    /// The version of the protocol, and the handle.
    fn __cuda_stream__(&self) -> (u8, usize) {
        (0, self.0)
    }
}

/// An object with `__cuda_stream__`, as other libraries take it; `None` for `NothingPending`.
impl<'py> IntoPyObject<'py> for StreamHandle {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;
    crate::__python_hint! { OUTPUT_TYPE ANYTHING }

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        self.to_raw().map(Stream).into_bound_py_any(py)
    }
}
