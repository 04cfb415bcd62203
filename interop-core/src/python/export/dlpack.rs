//! Exports an array as a DLPack capsule, for the arguments of `__dlpack__`.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray` and copy host memory")]

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::array::element::ElementType;
use crate::array::info::ArrayInfo;
use crate::array::layout::order::Order;
use crate::cuda;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::axes::ShapeField;
use crate::driver::device::{Device, DeviceType};
use crate::driver::release::reach::InReach;
use crate::driver::stream::PendingWork;
use crate::driver::stream_handle::StreamHandle;
use crate::error::{Error, ErrorKind};
use crate::memory::extraction::SHORT_COPY;
use crate::memory::host_vec::HostBuffer;
use crate::memory::raw_view::shared_elements;
use crate::memory::storage::InfoBuilder;
use crate::process::borrow_registry::Borrow;
use crate::protocols::dlpack::abi::{Legacy, Versioned};
use crate::protocols::dlpack::export::{ExportOwner, Ownership, export_kept as pack};
use crate::python::capsule::{share_borrow_table, wrap};
use crate::python::convert::{device, extract_integer, number, pair};
use crate::python::detach::{detached, free_detached};
use crate::python::errors::{no_such_stream, origin};
use crate::python::py_ref::release_deferred_refs;

/// Exports an array as the result of `__dlpack__`: a new capsule whose tensor shares the array and keeps it alive.
///
/// The capsule is a legacy one if `max_version` is missing or below 1. The consumer's stream waits for work that is
/// pending on the array; if the consumer is the host, this call waits. `dl_device` may be the array's own device or the
/// CPU. For the CPU, pinned and managed memory is exported in place, and device memory is copied. `copy=True` always
/// copies.
///
/// # Errors
///
/// - `ArrayError` for a request that cannot be fulfilled: another device, a read-only array in the legacy form, or a
///   needed copy that `copy=False` forbids.
/// - Its subclass `StreamError` for a stream that is not valid on the device.
/// - `MemoryError` if the host cannot allocate a copy.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use interop_core::python::{DlpackArgs, cuda_array_interface, dlpack_device, export};
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::prelude::*;
/// use pyo3::types::PyDict;
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
///         stream: Option<&Bound<'py, PyAny>>,
///         max_version: Option<&Bound<'py, PyAny>>,
///         dl_device: Option<&Bound<'py, PyAny>>,
///         copy: Option<&Bound<'py, PyAny>>,
///     ) -> PyResult<Bound<'py, PyAny>> {
///         let request = DlpackArgs::new([stream, max_version, dl_device, copy])?;
///         export(py, &self.samples, &request)
///     }
///
///     /// Which consumers ask first.
///     fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
///         dlpack_device(py, &*self.samples)
///     }
///
///     /// For memory that CUDA can reach.
///     #[getter]
///     fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
///         cuda_array_interface(py, &*self.samples)
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
    match array.info() {
        // SAFETY: the `Arc` keeps the array alive and at its address, and allows only shared access.
        Ok(ref info) => unsafe { answer(py, info, InReach::new(Arc::clone(array), None), request) },
        Err(error) => Err(error.into()),
    }
}

/// Returns the result of `__dlpack_device__` for an array: the device type and the ordinal. For an example see [`export`].
///
/// # Errors
///
/// As [`CudaArray::info`].
pub fn dlpack_device(py: Python<'_>, array: &(impl CudaArray + ?Sized)) -> PyResult<(i32, i32)> {
    release_deferred_refs(py);
    let device = array.info()?.device();
    Ok((device.device_type.0, device.device_id))
}

/// As [`export`], for an array with this description that `owner` keeps alive.
///
/// # Errors
///
/// As [`export`].
///
/// # Safety
///
/// As [`dlpack::export`](crate::dlpack::export), for the description of a [shared](Ownership::Shared) array.
pub(crate) unsafe fn answer<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    owner: impl ExportOwner,
    request: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    let own = info.device();
    let wanted = request.device.map_or(own, Device::normalized);
    if wanted != own && wanted != Device::CPU {
        let or_host = if own == Device::CPU { "" } else { ", or CPU (1)" };
        let allowed = format!("{own}, where the array is{or_host}");
        return Err(Error::new(ErrorKind::Device, "dl_device", wanted, allowed).into());
    }
    // The stream is checked even if it has no effect because the result is a copy. An invalid number is a mistake.
    // SAFETY: the protocol requires the consumer to pass its own stream; Python code cannot guarantee it.
    let consumer = unsafe { StreamHandle::from_dlpack(own.device_type, request.stream) };
    let consumer = consumer.map_err(|error| no_such_stream(py, error))?;
    let _consumer = (own != Device::CPU).then(|| cuda::NamedConsumer::new(Some(consumer)));
    let reachable = wanted == own || own.device_type.is_host_accessible();
    if request.copy == Some(true) || !reachable {
        // SAFETY: as the caller promises.
        return unsafe { answer_by_copy(py, info, wanted, consumer, request) };
    }
    // A consumer on the host passes no stream and reads immediately.
    if wanted != own || own.device_type.is_host_accessible() && request.stream.is_none() {
        cuda::refuse_capture(info, consumer)?;
        waiting(py, info, || cuda::hand_over(info, StreamHandle::NothingPending))?;
    } else if consumer == StreamHandle::NothingPending {
        // The consumer promises, by the protocol, that it needs no order.
        cuda::poll_in_passing();
    } else {
        cuda::hand_over(info, consumer)?;
    }
    // Pinned or managed memory, for a consumer that accepts only host memory.
    let on_host = (wanted != own)
        .then(|| ArrayInfo { device: Device::CPU, ..info.clone().with_work(PendingWork::NOTHING) });
    // SAFETY: as the caller promises.
    unsafe { capsule(py, on_host.as_ref().unwrap_or(info), owner, Ownership::Shared, request.versioned) }
}

/// As [`answer`], but copies to the host or on the array's own device.
///
/// # Safety
///
/// As [`answer`].
#[cold]
unsafe fn answer_by_copy<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    wanted: Device,
    consumer: StreamHandle,
    request: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    if request.copy == Some(false) {
        let allowed = "None or True, because the array has to be copied to get there";
        let found = format!("False with dl_device {wanted} for an array on {}", info.device());
        return Err(Error::new(ErrorKind::CopyRequired, "copy", found, allowed).into());
    }
    // The copy reads the memory, so Rust code must not write it meanwhile.
    let _access = Borrow::from_shared(shared_elements(info), false)?;
    cuda::refuse_capture(info, consumer)?;
    if wanted == Device::CPU {
        // A short copy on the host is not worth a switch of threads.
        let is_short = info.device() == Device::CPU && info.nbytes() <= SHORT_COPY;
        let (info, buffer) = if is_short { copied(info) } else { detached(py, || copied(info)) }?;
        // SAFETY: the description is that of the buffer, and nobody else has the buffer.
        return unsafe { capsule(py, &info, buffer, Ownership::Copied, request.versioned) };
    }
    // SAFETY: the memory is live, as the caller promises.
    let (buffer, info) =
        detached(py, || unsafe { crate::memory::copy::duplicate::duplicate(info, consumer) })?;
    // SAFETY: as above.
    unsafe { capsule(py, &info, buffer, Ownership::Copied, request.versioned) }
}

/// Runs a closure that may wait for work that is pending on an array. It runs [`detached`] from the interpreter
/// if there may be such work.
pub(crate) fn waiting<R: Send>(py: Python<'_>, info: &ArrayInfo, wait: impl FnOnce() -> R + Send) -> R {
    let idle = info.is_idle() || info.device() == Device::CPU;
    if idle { wait() } else { detached(py, wait) }
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
        wrap(py, unsafe { pack::<Versioned, _>(info, owner, access) }?)
    } else {
        // SAFETY: as the caller promises.
        wrap(py, unsafe { pack::<Legacy, _>(info, owner, access) }?)
    }
}

/// Copies an array to host memory, contiguous in C order.
fn copied(info: &ArrayInfo) -> PyResult<(ArrayInfo, HostBuffer)> {
    let flat = info.without_struct_type()?;
    let buffer = if flat.device().device_type == DeviceType::CUDA {
        let element = ElementType::from_whole_bytes(flat.dtype(), flat.is_padded())?;
        // SAFETY: the array guarantees that its memory is live.
        unsafe { crate::memory::copy::transfer::fetch_buffer(&flat, &element, Order::C) }?
    } else {
        crate::memory::host::cells::check_readable(flat.work())?;
        // SAFETY: as above, and the host can access the memory.
        unsafe { HostBuffer::copy_of(&flat, Order::C) }?
    };
    let info = flat.shape().to_vec().finish(InfoBuilder::storage(&buffer)?)?;
    Ok((info, buffer))
}

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
    // The minor version has no effect, so only its type is checked.
    if !minor.is_exact_instance_of::<PyInt>() {
        number(&minor, "max_version")?;
    }
    Ok(number(&major, "max_version")? >= 1)
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
