//! Parses the keyword arguments of `__dlpack__`.

use pyo3::prelude::*;

use crate::array::device::Device;
use crate::error::{Error, ErrorKind};
use crate::python::convert::{device, extract_integer, pair};
use crate::python::errors::origin;

/// The parsed arguments of `__dlpack__`. The default value is a call without arguments.
///
/// They are not yet checked against an array. For an example see [`export`](crate::python::export::dlpack::export).
#[derive(Clone, Copy, Debug, Default)]
pub struct DlpackArgs {
    pub(crate) stream: Option<i128>,
    pub(crate) versioned: bool,
    pub(crate) device: Option<Device>,
    pub(crate) copy: Option<bool>,
}

impl DlpackArgs {
    /// Parses the arguments of a call, in the order `stream`, `max_version`, `dl_device`, `copy`. `None` of Rust and of
    /// Python mean the same.
    ///
    /// # Errors
    ///
    /// `TypeError` for a value of the wrong type, `ArrayError` for a number out of range. Exceptions of the value are passed
    /// on.
    pub fn new(arguments: [Option<&Bound<'_, PyAny>>; 4]) -> PyResult<Self> {
        let [stream, max_version, dl_device, copy] =
            arguments.map(|argument| argument.filter(|value| !value.is_none()));
        Ok(Self {
            stream: stream.map(|value| extract_integer(value, "stream")).transpose()?,
            versioned: max_version.map_or(Ok(false), is_versioned)?,
            device: dl_device.map(|value| device(value, "dl_device")).transpose()?,
            copy: copy.map(boolean).transpose()?,
        })
    }
}

/// Returns whether `max_version` requests a versioned capsule.
fn is_versioned(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let pair = pair(value, "max_version", "(major, minor)")?;
    let (major, minor) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
    extract_integer(&minor, "max_version")?;
    Ok(extract_integer(&major, "max_version")? >= 1)
}

/// Reads `copy`. Accepts a `NumPy` bool too, because `numpy.from_dlpack` passes on its argument.
fn boolean(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(copy) = value.extract::<bool>() {
        return Ok(copy);
    }
    // A value without a truth value, such as an array, raises its own exception.
    value.is_truthy()?;
    Err(Error::new(ErrorKind::Type, "copy", origin(value), "True, False or None").into())
}
