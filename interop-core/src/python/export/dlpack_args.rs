//! Parses the keyword arguments of `__dlpack__`.
#![expect(unsafe_code, reason = "keeps a reference past PyO3")]

use core::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::array::device::Device;
use crate::error::{Error, ErrorKind};
use crate::python::convert::{device, extract_integer, pair};
use crate::python::errors::origin;

/// The last `max_version` tuple that requested a versioned capsule. It is kept alive, because consumers pass the same
/// constant repeatedly. A caller holds a reference to its tuple, so an equal address means the same tuple.
static VERSIONED: AtomicPtr<ffi::PyObject> = AtomicPtr::new(core::ptr::null_mut());

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
        let takers = [Self::take_stream, Self::take_version, Self::take_device, Self::take_copy];
        let mut request = Self::default();
        for (argument, take) in arguments.into_iter().zip(takers) {
            if let Some(value) = argument.filter(|value| !value.is_none()) {
                take(&mut request, value)?;
            }
        }
        Ok(request)
    }

    fn take_stream(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.stream = Some(extract_integer(value, "stream")?);
        Ok(())
    }

    fn take_device(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.device = Some(device(value, "dl_device")?);
        Ok(())
    }

    fn take_version(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if value.as_ptr() == VERSIONED.load(Ordering::Acquire) {
            self.versioned = true;
            return Ok(());
        }
        let (major, constant) = major(value)?;
        self.versioned = major >= 1;
        if self.versioned && constant {
            let last = VERSIONED.swap(value.clone().into_ptr(), Ordering::AcqRel);
            // SAFETY: null, or the reference that was stored before.
            drop(unsafe { Bound::from_owned_ptr_or_opt(value.py(), last) });
        }
        Ok(())
    }

    fn take_copy(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // Accepts a `NumPy` bool too, because `numpy.from_dlpack` passes on its argument.
        let Ok(copy) = value.extract::<bool>() else {
            // A value without a truth value, such as an array, raises its own exception.
            value.is_truthy()?;
            return Err(Error::new(ErrorKind::Type, "copy", origin(value), "True, False or None").into());
        };
        self.copy = Some(copy);
        Ok(())
    }
}

/// Returns the major version in `max_version`, and whether the tuple may be cached. It may if it is an exact tuple of
/// exact ints, because it is then immutable and keeps no other objects alive.
fn major(value: &Bound<'_, PyAny>) -> PyResult<(i128, bool)> {
    let pair = pair(value, "max_version", "(major, minor)")?;
    let (major, minor) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
    extract_integer(&minor, "max_version")?;
    let plain = |number: &Bound<'_, PyAny>| number.is_exact_instance_of::<PyInt>();
    let constant = value.is_exact_instance_of::<PyTuple>() && plain(&major) && plain(&minor);
    Ok((extract_integer(&major, "max_version")?, constant))
}
