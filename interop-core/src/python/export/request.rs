//! The keyword arguments of `__dlpack__`.
#![expect(unsafe_code, reason = "keeps a reference past PyO3")]

use core::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyString, PyTuple};

use crate::array::device::Device;
use crate::error::{Error, ErrorKind};
use crate::python::convert::{device, extract_integer, pair};
use crate::python::errors::origin;

/// The last tuple that asked for a versioned capsule, kept alive: consumers come with the same constant again and again.
/// Who compares it holds a reference too, so an equal address is the same tuple.
static VERSIONED: AtomicPtr<ffi::PyObject> = AtomicPtr::new(core::ptr::null_mut());

/// The arguments of `__dlpack__`, read but not yet compared with an array. Without any it is a plain `__dlpack__()`; an
/// example is at [`export`](crate::dlpack::export).
#[derive(Clone, Copy, Debug, Default)]
pub struct DlpackArgs {
    pub(crate) stream: Option<i128>,
    pub(crate) versioned: bool,
    pub(crate) device: Option<Device>,
    pub(crate) copy: Option<bool>,
}

impl DlpackArgs {
    /// For a capsule of the current form with a copy of the elements.
    pub(crate) fn for_a_copy() -> Self {
        Self { versioned: true, copy: Some(true), ..Self::default() }
    }

    /// Takes one keyword argument.
    ///
    /// # Errors
    ///
    /// `TypeError` for an unknown keyword and for a value of the wrong type, `ArrayError` for a number that does not fit; what
    /// the value raises is passed on.
    pub fn set(&mut self, keyword: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let known = KEYWORDS.iter().find(|(name, _)| *name == keyword);
        match known {
            Some((_, take)) if !value.is_none() => take(self, value),
            Some(_) => Ok(()),
            None => {
                let text = format!("__dlpack__() got an unexpected keyword argument '{keyword}'");
                Err(PyTypeError::new_err(text))
            }
        }
    }

    /// As [`set`](Self::set), for a keyword as Python calls bring it: interned, nearly always.
    pub(crate) fn set_interned(
        &mut self,
        keyword: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        static INTERNED: PyOnceLock<[Py<PyString>; KEYWORDS.len()]> = PyOnceLock::new();
        let py = keyword.py();
        let interned =
            INTERNED.get_or_init(py, || KEYWORDS.map(|(name, _)| PyString::intern(py, name).unbind()));
        match interned.iter().zip(&KEYWORDS).find(|(name, _)| keyword.is(*name)) {
            Some(_) if value.is_none() => Ok(()),
            Some((_, (_, take))) => take(self, value),
            None => self.set(&keyword.to_string_lossy(), value),
        }
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
            // SAFETY: null, or the reference that was put there.
            drop(unsafe { Bound::from_owned_ptr_or_opt(value.py(), last) });
        }
        Ok(())
    }

    fn take_copy(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // A bool of `NumPy` too: `numpy.from_dlpack` hands on what it was given.
        let Ok(copy) = value.extract::<bool>() else {
            // What has no truth says so itself, as an array does.
            value.is_truthy()?;
            return Err(Error::new(ErrorKind::Type, "copy", origin(value), "True, False or None").into());
        };
        self.copy = Some(copy);
        Ok(())
    }
}

type Take = fn(&mut DlpackArgs, &Bound<'_, PyAny>) -> PyResult<()>;

/// The keywords of `__dlpack__`, and who takes the value that is not `None`.
const KEYWORDS: [(&str, Take); 4] = [
    ("stream", |request, value| {
        request.stream = Some(extract_integer(value, "stream")?);
        Ok(())
    }),
    ("max_version", DlpackArgs::take_version),
    ("dl_device", |request, value| {
        request.device = Some(device(value, "dl_device")?);
        Ok(())
    }),
    ("copy", DlpackArgs::take_copy),
];

/// The major version in `max_version`; and whether that is all there is to the tuple, so that it says the same for ever and
/// keeps nothing of anybody's alive.
fn major(value: &Bound<'_, PyAny>) -> PyResult<(i128, bool)> {
    let pair = pair(value, "max_version", "(major, minor)")?;
    let (major, minor) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
    extract_integer(&minor, "max_version")?;
    let plain = |number: &Bound<'_, PyAny>| number.is_exact_instance_of::<PyInt>();
    let constant = value.is_exact_instance_of::<PyTuple>() && plain(&major) && plain(&minor);
    Ok((extract_integer(&major, "max_version")?, constant))
}
