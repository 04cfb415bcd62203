//! Numbers, device tuples and streams as Python objects spell them.
#![expect(unsafe_code, reason = "takes Python's word for a stream")]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple};

use crate::array::device::{Device, DeviceType};
use crate::array::stream::StreamHandle;
use crate::error::{Error, ErrorKind, Result, text};
use crate::python::errors::{Failure, origin, with_length};
use crate::python::interpreter::{attribute, index};

/// An integer: anything with `__index__` but a bool. `place` names it in the message.
///
/// # Errors
///
/// `TypeError` for other objects, `ArrayError` for an int of more than 128 bits; what `__index__` raises is passed on.
pub fn extract_integer(value: &Bound<'_, PyAny>, place: &str) -> PyResult<i128> {
    Ok(number(value, place)?)
}

/// As [`integer`], for what is said of an object whose class the message will name.
pub(crate) fn number(value: &Bound<'_, PyAny>, place: &str) -> Result<i128, Failure> {
    let py = value.py();
    // By far the most are small ints, or members of an enum of them; what does not fit is looked at again below.
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        if let Ok(number) = value.extract::<i64>() {
            return Ok(number.into());
        }
    }
    let wrong = || Error::new(ErrorKind::Type, place, origin(value), "an int");
    if value.is_instance_of::<PyBool>() || is_numpy_bool(value) {
        return Err(wrong().into());
    }
    let index = match index(value) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            if !value.get_type().hasattr(pyo3::intern!(py, "__index__"))? {
                return Err(wrong().into());
            }
            // It is meant to be an int, and says why it is none.
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

/// Whether this is a bool of `NumPy`, which has `__index__` in older versions.
fn is_numpy_bool(value: &Bound<'_, PyAny>) -> bool {
    let class = value.get_type();
    class.name().is_ok_and(|name| name == "bool" || name == "bool_")
        && class.module().is_ok_and(|module| module == "numpy")
}

/// `(device type, ordinal)`, of ints or of what has `__index__`; or of members of an `enum.Enum`, which need not be ints,
/// and as which the array API standard types the device. The ordinal of memory of the host, which has none, may be `None`, as
/// `PaddlePaddle` writes it.
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

/// The value of a member of an enum; other objects as they are.
#[cold]
fn value_of(item: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let class = item.py().import("enum")?.getattr("Enum")?;
    if item.is_instance(&class)? { item.getattr("value") } else { Ok(item) }
}

/// A tuple of two ints, which are not looked at yet. `what` names them in the message.
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

/// A stream as a Python caller names it: an int (1, 2 or a handle; -1 for no ordering), or an object with
/// `__cuda_stream__`, which the stream classes of most libraries have by now.
///
/// # Errors
///
/// `ArrayError` for numbers that are no stream, `TypeError` for other objects; what `__cuda_stream__` raises is passed on.
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
    let py = stream.py();
    if let Some(method) = attribute(stream, pyo3::intern!(py, "__cuda_stream__"))? {
        // The protocol had a property before the method: `cuda.core` until 0.2, and who followed it.
        return handle_of(&if method.is_instance_of::<PyTuple>() { method } else { method.call0()? });
    }
    let number = number(stream, "stream").map_err(|fault| match fault {
        Failure::Invalid(error) if error.kind() == ErrorKind::Type => {
            let allowed = "an int, or an object with `__cuda_stream__`";
            Error::new(ErrorKind::Type, "stream", origin(stream), allowed).into()
        }
        fault => fault,
    })?;
    // SAFETY: Python code can promise nothing; the protocol asks it for a stream that is alive.
    Ok(unsafe { StreamHandle::from_dlpack(DeviceType::CUDA, Some(number)) }?)
}

/// The stream that `__cuda_stream__` answers with: the protocol's version, which is 0, and the handle.
fn handle_of(answer: &Bound<'_, PyAny>) -> PyResult<StreamHandle> {
    const PLACE: &str = "__cuda_stream__";
    let pair = pair(answer, PLACE, "(version, handle)")?;
    let version = extract_integer(&pair.get_item(0)?, PLACE)?;
    if version != 0 {
        return Err(Error::new(ErrorKind::Version, PLACE, version, "version 0").into());
    }
    let handle = extract_integer(&pair.get_item(1)?, PLACE)?;
    match usize::try_from(handle) {
        // SAFETY: as for a number; the protocol's objects keep their streams.
        Ok(handle) => Ok(unsafe { StreamHandle::from_raw(handle) }),
        Err(_) => Err(Error::new(ErrorKind::Stream, PLACE, handle, "the address of a stream").into()),
    }
}
