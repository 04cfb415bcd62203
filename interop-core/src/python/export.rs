//! What `__dlpack__` was asked for, and the capsule that answers.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray` and copy host memory")]

use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyString, PyTuple};

use super::capsule::wrap;
use super::device::{device, integer, pair};
use super::errors::{no_such_stream, origin};
use super::release::{drain_releases, free_without_lock, without_lock};
use super::shared::share_access;
use crate::array::CudaArray;
use crate::borrow::Borrow;
use crate::buffer::HostBuffer;
use crate::cuda;
use crate::describe::Describe;
use crate::device::{Device, DeviceType};
use crate::dlpack::{Access, Legacy, ManagedTensor, Versioned, export as pack};
use crate::error::{Error, ErrorKind};
use crate::facts::Facts;
use crate::roles::ShapeField;
use crate::stream::StreamHandle;
use crate::view::shared;

/// The last tuple that asked for a versioned capsule, kept alive: consumers come with the same constant again and again.
/// Who compares it holds a reference too, so an equal address is the same tuple.
static VERSIONED: AtomicPtr<ffi::PyObject> = AtomicPtr::new(core::ptr::null_mut());

/// The arguments of `__dlpack__`, read but not yet compared with an array. Without any it is a plain `__dlpack__()`; an
/// example is at [`export`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    stream: Option<i128>,
    versioned: bool,
    device: Option<Device>,
    copy: Option<bool>,
}

impl Request {
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
    pub(super) fn set_interned(
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

type Take = fn(&mut Request, &Bound<'_, PyAny>) -> PyResult<()>;

/// The keywords of `__dlpack__`, and who takes the value that is not `None`.
const KEYWORDS: [(&str, Take); 4] = [
    ("stream", |request, value| {
        request.stream = Some(integer(value, "stream")?);
        Ok(())
    }),
    ("max_version", Request::take_version),
    ("dl_device", |request, value| {
        request.device = Some(device(value, "dl_device")?);
        Ok(())
    }),
    ("copy", Request::take_copy),
];

/// The major version in `max_version`; and whether that is all there is to the tuple, so that it says the same for ever and
/// keeps nothing of anybody's alive.
fn major(value: &Bound<'_, PyAny>) -> PyResult<(i128, bool)> {
    let pair = pair(value, "max_version", "(major, minor)")?;
    let (major, minor) = (pair.get_borrowed_item(0)?, pair.get_borrowed_item(1)?);
    integer(&minor, "max_version")?;
    let plain = |number: &Bound<'_, PyAny>| number.is_exact_instance_of::<PyInt>();
    let constant = value.is_exact_instance_of::<PyTuple>() && plain(&major) && plain(&minor);
    Ok((integer(&major, "max_version")?, constant))
}

/// Answers `__dlpack__` for an array: a fresh capsule with a tensor that keeps the array alive, and shares it.
///
/// Without `max_version`, or with one below 1, the capsule is a legacy one. Work that is pending on the array is ordered
/// before the consumer's stream, or waited for where the consumer is the host. `dl_device` may name the array's own device
/// or CPU: pinned and managed memory is handed out in place then, memory of a device is copied. `copy=True` copies.
///
/// # Errors
///
/// `ArrayError` for a request that cannot be met: another device, a read-only array in the legacy form, a copy that is needed
/// and was forbidden; its subclass `StreamError` for a stream that the device does not have. `MemoryError` for a copy for which
/// the host has no room.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use interop_core::python::{Request, export};
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::prelude::*;
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// #[pyclass(frozen)]
/// struct Recording { samples: Arc<Samples> }
///
/// #[pymethods]
/// impl Recording {
///     #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
///     fn __dlpack__<'py>(
///         &self,
///         py: Python<'py>,
///         stream: Option<Bound<'py, PyAny>>,
///         max_version: Option<Bound<'py, PyAny>>,
///         dl_device: Option<Bound<'py, PyAny>>,
///         copy: Option<Bound<'py, PyAny>>,
///     ) -> PyResult<Bound<'py, PyAny>> {
///         let mut request = Request::default();
///         for (keyword, value) in
///             [("stream", stream), ("max_version", max_version), ("dl_device", dl_device), ("copy", copy)]
///         {
///             if let Some(value) = value {
///                 request.set(keyword, &value)?;
///             }
///         }
///         export(py, &self.samples, &request)
///     }
///
///     /// Which consumers ask first.
///     fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
///         let device = self.samples.facts()?.device();
///         Ok((device.device_type.0, device.device_id))
///     }
/// }
/// ```
pub fn export<'py, A: CudaArray + Send + Sync + 'static>(
    py: Python<'py>,
    array: &Arc<A>,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    drain_releases(py);
    free_without_lock();
    share_access(py)?;
    // SAFETY: whoever has the `Arc` keeps the array alive and where it is, and can only share it.
    unsafe { answer(py, &**array, Arc::clone(array), request) }
}

/// As [`export`], for an array that `owner` keeps alive.
///
/// # Errors
///
/// As [`export`].
///
/// # Safety
///
/// As [`dlpack::export`](crate::dlpack::export), for the facts of an array that is [shared](Access::Shared).
pub(super) unsafe fn answer<'py, A: CudaArray>(
    py: Python<'py>,
    array: &A,
    owner: impl Send + 'static,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    // By reference: facts are some two hundred bytes, of which the export reads a few.
    match array.facts() {
        // SAFETY: as the caller promises.
        Ok(ref facts) => unsafe { answer_described(py, facts, owner, request) },
        Err(error) => Err(error.into()),
    }
}

/// As [`answer`], for an array that these facts describe.
///
/// # Safety
///
/// As [`answer`].
unsafe fn answer_described<'py>(
    py: Python<'py>,
    facts: &Facts,
    owner: impl Send + 'static,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    let (own, versioned) = (facts.device(), request.versioned);
    let wanted = request.device.map_or(own, Device::normalized);
    if wanted != own && wanted != Device::CPU {
        let or_host = if own == Device::CPU { "" } else { ", or CPU (1)" };
        let allowed = format!("{own}, where the array is{or_host}");
        return Err(Error::new(ErrorKind::Device, "dl_device", wanted, allowed).into());
    }
    // Also where it decides nothing, because the answer is a copy: a number that is no stream is a mistake.
    // SAFETY: the protocol asks the consumer for its own stream, and Python code can promise nothing.
    let consumer = unsafe { StreamHandle::from_dlpack(own.device_type, request.stream) };
    let consumer = consumer.map_err(|error| no_such_stream(py, error))?;
    let reachable = wanted == own || own.device_type.is_host_accessible();
    if request.copy == Some(true) || !reachable {
        // SAFETY: as the caller promises.
        return unsafe { answer_by_copy(py, facts, wanted, request) };
    }
    if wanted == own {
        // A consumer on the host names no stream, and starts to read at once.
        let on_host = own.device_type.is_host_accessible() && request.stream.is_none();
        if on_host {
            waiting(py, facts, || cuda::hand_to_host(facts))?;
        } else {
            cuda::hand_over(facts, consumer)?;
        }
        // SAFETY: as the caller promises.
        return unsafe { capsule(py, facts, owner, Access::Shared, versioned) };
    }
    // Pinned or managed memory, for a consumer that takes host memory only.
    waiting(py, facts, || cuda::hand_to_host(facts))?;
    let on_host = Facts { device: Device::CPU, stream: StreamHandle::NothingPending, ..facts.clone() };
    // SAFETY: as above.
    unsafe { capsule(py, &on_host, owner, Access::Shared, versioned) }
}

/// As [`answer_described`], with a copy on the host or on the array's own device.
///
/// # Safety
///
/// As [`answer`].
#[cold]
unsafe fn answer_by_copy<'py>(
    py: Python<'py>,
    facts: &Facts,
    wanted: Device,
    request: &Request,
) -> PyResult<Bound<'py, PyAny>> {
    if request.copy == Some(false) {
        let allowed = "None or True, because the array has to be copied to get there";
        let found = format!("False with dl_device {wanted} for an array on {}", facts.device());
        return Err(Error::new(ErrorKind::Copy, "copy", found, allowed).into());
    }
    // To copy is to read, which other Rust code may not write to meanwhile.
    let _access = Borrow::of(shared(facts), false)?;
    if wanted == Device::CPU {
        let (facts, buffer) = copying(py, facts, || copied(facts))?;
        // SAFETY: the buffer is what the facts describe, and nobody else has it.
        return unsafe { capsule(py, &facts, buffer, Access::Copied, request.versioned) };
    }
    // SAFETY: the memory is live, as the caller promises.
    let (buffer, facts) = copying(py, facts, || unsafe { cuda::duplicate(facts) })?;
    // SAFETY: as above.
    unsafe { capsule(py, &facts, buffer, Access::Copied, request.versioned) }
}

/// Runs what may wait for the work that is pending on an array, [without the interpreter's lock](without_lock) if there
/// may be some.
pub(super) fn waiting<R: Send>(py: Python<'_>, facts: &Facts, wait: impl FnOnce() -> R + Send) -> R {
    let idle = facts.stream() == StreamHandle::NothingPending || facts.device() == Device::CPU;
    if idle { wait() } else { without_lock(py, wait) }
}

/// Runs what copies an array, [without the interpreter's lock](without_lock) if a device may do it: a copy waits for the
/// default stream, and so for streams that have nothing to do with the array.
fn copying<R: Send>(py: Python<'_>, facts: &Facts, copy: impl FnOnce() -> R + Send) -> R {
    if facts.device() == Device::CPU { copy() } else { without_lock(py, copy) }
}

/// # Safety
///
/// As [`dlpack::export`](crate::dlpack::export).
unsafe fn capsule<'py>(
    py: Python<'py>,
    facts: &Facts,
    owner: impl Send + 'static,
    access: Access,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if versioned {
        // SAFETY: as the caller promises.
        let tensor: ManagedTensor<Versioned> = unsafe { pack(facts, owner, access) }?;
        return wrap(py, tensor);
    }
    // SAFETY: as the caller promises.
    let tensor: ManagedTensor<Legacy> = unsafe { pack(facts, owner, access) }?;
    wrap(py, tensor)
}

/// A compact copy of an array in host memory, in C order.
fn copied(facts: &Facts) -> PyResult<(Facts, HostBuffer)> {
    let mut flat = facts.flattened()?;
    let staged;
    if flat.device().device_type == DeviceType::CUDA {
        // SAFETY: the array vouches that its memory is live.
        staged = unsafe { cuda::stage(&flat) }?;
        flat = staged.facts.clone();
    } else {
        crate::host::check_readable(flat.device(), flat.stream())?;
    }
    // SAFETY: the array vouches that its memory is live, or it is in `staged`; and the host can reach it.
    let buffer = unsafe { HostBuffer::copy_of(&flat) }?;
    let facts = flat.shape().to_vec().finish(Describe::storage(&buffer))?;
    Ok((facts, buffer))
}
