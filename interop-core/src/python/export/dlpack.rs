//! What `__dlpack__` was asked for, and the capsule that answers.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray` and copy host memory")]

use std::sync::Arc;

use pyo3::prelude::*;

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::cuda;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::axes::ShapeField;
use crate::error::{Error, ErrorKind};
use crate::memory::array_view::shared_range;
use crate::memory::borrow_registry::Borrow;
use crate::memory::host_buffer::HostBuffer;
use crate::memory::info_builder::InfoBuilder;
use crate::protocols::dlpack::abi::{Legacy, Versioned};
use crate::protocols::dlpack::export::{Ownership, export_kept as pack};
use crate::protocols::dlpack::export_owner::{ExportOwner, SharedHandle};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::capsule::wrap;
use crate::python::detach::{detached, free_detached};
use crate::python::errors::no_such_stream;
use crate::python::export::request::DlpackArgs;
use crate::python::py_owner::release_deferred_refs;
use crate::python::shared_borrows::share_borrow_table;

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
/// use interop_core::python::{DlpackArgs, export};
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
///         let mut request = DlpackArgs::default();
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
///         let device = self.samples.info()?.device();
///         Ok((device.device_type.0, device.device_id))
///     }
/// }
/// ```
pub fn export<'py, A: CudaArray + Send + Sync + 'static>(
    py: Python<'py>,
    array: &Arc<A>,
    request: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    release_deferred_refs(py);
    free_detached();
    share_borrow_table(py)?;
    // SAFETY: whoever has the `Arc` keeps the array alive and where it is, and can only share it.
    unsafe { answer(py, &**array, SharedHandle::new(array), request) }
}

/// As [`export`], for an array that `owner` keeps alive.
///
/// # Errors
///
/// As [`export`].
///
/// # Safety
///
/// As [`dlpack::export`](crate::dlpack::export), for the facts of an array that is [shared](Ownership::Shared).
pub(crate) unsafe fn answer<'py, A: CudaArray>(
    py: Python<'py>,
    array: &A,
    owner: impl ExportOwner,
    request: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    // By reference: facts are some two hundred bytes, of which the export reads a few.
    match array.info() {
        // SAFETY: as the caller promises.
        Ok(ref info) => unsafe { answer_described(py, info, owner, request) },
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
    info: &ArrayInfo,
    owner: impl ExportOwner,
    request: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    let (own, versioned) = (info.device(), request.versioned);
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
        return unsafe { answer_by_copy(py, info, (wanted, consumer), request) };
    }
    if wanted == own {
        // A consumer on the host names no stream, and starts to read at once.
        let on_host = own.device_type.is_host_accessible() && request.stream.is_none();
        if on_host {
            waiting(py, info, || cuda::synchronize_for_host(info))?;
        } else {
            cuda::make_consumer_wait(info, consumer)?;
        }
        // SAFETY: as the caller promises.
        return unsafe { capsule(py, info, owner, Ownership::Shared, versioned) };
    }
    // Pinned or managed memory, for a consumer that takes host memory only.
    waiting(py, info, || cuda::synchronize_for_host(info))?;
    let on_host = ArrayInfo {
        device: Device::CPU,
        stream: PendingWork::on(StreamHandle::NothingPending),
        ..info.clone()
    };
    // SAFETY: as above.
    unsafe { capsule(py, &on_host, owner, Ownership::Shared, versioned) }
}

/// As [`answer_described`], with a copy on the host or on the array's own device.
///
/// # Safety
///
/// As [`answer`].
#[cold]
unsafe fn answer_by_copy<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    (wanted, consumer): (Device, StreamHandle),
    request: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    if request.copy == Some(false) {
        let allowed = "None or True, because the array has to be copied to get there";
        let found = format!("False with dl_device {wanted} for an array on {}", info.device());
        return Err(Error::new(ErrorKind::CopyRequired, "copy", found, allowed).into());
    }
    // To copy is to read, which other Rust code may not write to meanwhile.
    let _access = Borrow::of(shared_range(info), false)?;
    if wanted == Device::CPU {
        let (info, buffer) = copying(py, info, || copied(info))?;
        // SAFETY: the buffer is what the facts describe, and nobody else has it.
        return unsafe { capsule(py, &info, buffer, Ownership::Copied, request.versioned) };
    }
    // SAFETY: the memory is live, as the caller promises.
    let (buffer, info) =
        copying(py, info, || unsafe { crate::memory::duplicate::duplicate(info, consumer) })?;
    // SAFETY: as above.
    unsafe { capsule(py, &info, buffer, Ownership::Copied, request.versioned) }
}

/// Runs what may wait for the work that is pending on an array, [without the interpreter's lock](detached) if there
/// may be some.
pub(crate) fn waiting<R: Send>(py: Python<'_>, info: &ArrayInfo, wait: impl FnOnce() -> R + Send) -> R {
    let idle = info.stream() == StreamHandle::NothingPending || info.device() == Device::CPU;
    if idle { wait() } else { detached(py, wait) }
}

/// Runs what copies an array, [without the interpreter's lock](detached) if a device may do it: a copy waits for the
/// default stream, and so for streams that have nothing to do with the array.
fn copying<R: Send>(py: Python<'_>, info: &ArrayInfo, copy: impl FnOnce() -> R + Send) -> R {
    if info.device() == Device::CPU { copy() } else { detached(py, copy) }
}

/// # Safety
///
/// As [`dlpack::export`](crate::dlpack::export).
unsafe fn capsule<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    owner: impl ExportOwner,
    access: Ownership,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if versioned {
        // SAFETY: as the caller promises.
        let tensor: ManagedTensor<Versioned> = unsafe { pack(info, owner, access) }?;
        return wrap(py, tensor);
    }
    // SAFETY: as the caller promises.
    let tensor: ManagedTensor<Legacy> = unsafe { pack(info, owner, access) }?;
    wrap(py, tensor)
}

/// A compact copy of an array in host memory, in C order.
fn copied(info: &ArrayInfo) -> PyResult<(ArrayInfo, HostBuffer)> {
    let flat = info.without_struct_type()?;
    let buffer = if flat.device().device_type == DeviceType::CUDA {
        // SAFETY: the array vouches that its memory is live.
        unsafe { crate::memory::fetch::fetch_buffer(&flat) }?
    } else {
        crate::memory::host::checked_read::check_readable(flat.device(), flat.stream())?;
        // SAFETY: as above, and the host can reach it.
        unsafe { HostBuffer::copy_of(&flat) }?
    };
    let info = flat.shape().to_vec().finish(InfoBuilder::storage(&buffer))?;
    Ok((info, buffer))
}
