//! Numbers and device tuples as Python objects spell them.

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyTuple};

use crate::device::{Device, DeviceType};
use crate::error::{Error, ErrorKind, Result};

/// An integer: anything with `__index__` but a bool. `place` names it in the message.
///
/// # Errors
///
/// `TypeError` for other objects, `ArrayError` for an int of more than 128 bits; what `__index__` raises is passed on.
pub fn integer(value: &Bound<'_, PyAny>, place: &str) -> PyResult<i128> {
    let py = value.py();
    // By far the most are plain and small; what does not fit is looked at again below.
    if value.is_exact_instance_of::<PyInt>() {
        if let Ok(number) = value.extract::<i64>() {
            return Ok(number.into());
        }
    }
    let wrong = || PyErr::from(Error::new(ErrorKind::Type, place, super::errors::origin(value), "an int"));
    // Bools of NumPy too, which have `__index__` in older versions.
    let boolean = value.is_instance_of::<PyBool>();
    if boolean || (!value.is_instance_of::<PyInt>() && value.extract::<bool>().is_ok()) {
        return Err(wrong());
    }
    let index = if value.is_instance_of::<PyInt>() {
        value.clone()
    } else {
        let index = match value.call_method0(pyo3::intern!(py, "__index__")) {
            Err(error)
                if error.is_instance_of::<PyTypeError>(py)
                    || error.is_instance_of::<PyAttributeError>(py) =>
            {
                return Err(wrong());
            }
            index => index?,
        };
        index.cast_into::<PyInt>().map_err(|_| wrong())?.into_any()
    };
    index.extract::<i128>().map_err(|_| {
        Error::new(ErrorKind::Overflow, place, "an int of more than 128 bits", "an int of 64 bits at most")
            .into()
    })
}

/// `(device type, ordinal)`, of ints or of what has `__index__`, such as enum members.
pub(super) fn device(value: &Bound<'_, PyAny>, place: &str) -> PyResult<Device> {
    let tuple = pair(value, place, "(device type, ordinal)")?;
    let number = |at: usize| {
        let number = integer(&tuple.get_item(at)?, place)?;
        i32::try_from(number)
            .map_err(|_| PyErr::from(Error::new(ErrorKind::Device, place, number, "numbers of 32 bits")))
    };
    Ok(Device { device_type: DeviceType(number(0)?), device_id: number(1)? })
}

/// A tuple of two ints, which are not looked at yet. `what` names them in the message.
pub(super) fn pair<'a, 'py>(
    value: &'a Bound<'py, PyAny>,
    place: &str,
    what: &str,
) -> Result<&'a Bound<'py, PyTuple>> {
    value.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == 2).ok_or_else(|| {
        let allowed = format_args!("a tuple {what} of two ints");
        Error::new(ErrorKind::Type, place, super::errors::origin(value), allowed)
    })
}
