//! The trait of array classes, and their `__dlpack__`: from the arguments of the call to the destructor of the capsule.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray` and copy host memory")]

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyCapsule, PyInt};
use pyo3::{PyClass, ffi};

use crate::array::device::{Device, DeviceType};
use crate::array::element::ElementType;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::derive::cuda_array::CudaArray;
use crate::derive::fields::axes::ShapeField;
use crate::driver::reach::InReach;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::extraction::SHORT_COPY;
use crate::memory::host_vec::HostBuffer;
use crate::memory::storage::Storage;
use crate::order::array_info::ArrayInfo;
use crate::order::claim::{Claim, shared_elements};
use crate::order::handover::{hand_over, refuse_capture};
use crate::order::placement::Placement;
use crate::order::release::hold::NamedConsumer;
use crate::order::release::queue::poll_in_passing;
use crate::protocols::dlpack::abi::{Legacy, TensorAbi, Versioned};
use crate::protocols::dlpack::export::{ExportOwner, Ownership, drop_unconsumed, export_kept};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::capsule::share_record;
use crate::python::convert::{device, extract_integer, number, pair};
use crate::python::errors::{no_such_stream, origin};
use crate::python::interpreter::{
    PyRef, capsule_pointer, detached, free_detached, raised, release_deferred_refs, waiting, with_attached,
    with_saved_exception,
};

/// `#[pyclass(frozen)]` as a type, as `PyO3` expresses it.
#[doc(hidden)]
pub trait IsFrozen: Sized {
    /// Returns the struct of an object, on any thread. A borrow would panic on other threads if the class is
    /// `unsendable`, but the struct is `Sync`.
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T;
}

impl IsFrozen for True {
    #[inline]
    fn get<'a, T: PyClass<Frozen = Self> + Sync>(object: &'a Bound<'_, T>) -> &'a T {
        object.get()
    }
}

/// Implemented by `#[cuda_array(pyclass)]`, whether or not the struct is a frozen class.
#[doc(hidden)]
pub trait ArrayMethods: CudaArray + Send + Sync {
    /// Returns the struct of an object. The expansion calls [`struct_of`] here and nowhere else, so that an unmet bound
    /// gives one error message.
    fn of<'a>(object: &'a Bound<'_, Self>) -> &'a Self
    where
        Self: Sized;
}

/// A `#[pyclass]` whose instances are arrays. `#[cuda_array(pyclass)]` implements it.
///
/// The class is frozen: exports keep the Python object and its struct, which must not change while consumers use its
/// memory.
///
/// A `Py<T>` of such a class is an array too. It keeps the object, and so the memory, alive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Python class of arrays",
    label = "not a frozen class with `pyclass` in `#[cuda_array(...)]`",
    note = "write `#[pyclass(frozen)]`, `#[derive(CudaArray)]` and `#[cuda_array(pyclass)]` on the struct",
    note = "for a class that implements `CudaArray` by hand write `interop_core::array_class!(Class)`",
    note = "`frozen`: its memory is shared with Python, so nothing may replace it"
)]
pub trait ArrayClass: ArrayMethods + PyClass<Frozen: IsFrozen> {}

#[diagnostic::do_not_recommend]
impl<T: ArrayMethods + PyClass<Frozen: IsFrozen>> ArrayClass for T {}

/// Returns the struct of an object of a class.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn struct_of<'a, T: ArrayClass>(object: &'a Bound<'_, T>) -> &'a T {
    T::Frozen::get(object)
}

// SAFETY: 1 to 3: as for the struct, which lives as long as its object. Nothing changes it, because the class is frozen.
// 4: others have the object too, so memory that only its sole owner may write is stated as read-only. 5 and 6: as for the
// struct.
unsafe impl<T: ArrayClass> CudaArray for Py<T> {
    fn info(&self) -> Result<ArrayInfo> {
        described_attached(|py| shared_info(self.bind(py)))
    }

    fn note_read(&self, stream: StreamHandle) -> bool {
        with_attached(|py| struct_of(self.bind(py)).note_read(stream)).unwrap_or(false)
    }
}

/// Describes an array of a Python object, which needs the interpreter.
pub(crate) fn described_attached(
    describe: impl FnOnce(Python<'_>) -> Result<ArrayInfo>,
) -> Result<ArrayInfo> {
    with_attached(describe).unwrap_or_else(|| {
        Err(Error::state(ErrorKind::Unsupported, "python", "the interpreter is shutting down"))
    })
}

/// Returns the description of an array whose object others have too.
pub(crate) fn shared_info<T: ArrayMethods>(object: &Bound<'_, T>) -> Result<ArrayInfo> {
    let mut info = T::of(object).info();
    if let Ok(info) = &mut info {
        if info.mutability == Mutability::UniqueOwner {
            info.description.mutability = Mutability::ReadOnly;
        }
    }
    info
}

/// `__dlpack__`.
#[doc(hidden)]
pub fn dlpack<'py, T: ArrayMethods>(
    object: &Bound<'py, T>,
    arguments: [Option<&Bound<'py, PyAny>>; 4],
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    release_deferred_refs(py);
    let arguments = DlpackArgs::try_from(arguments)?;
    let owner = InReach::new(PyRef::new(object.clone().into_any().unbind()), None);
    // By reference, so that the description is not moved (see `ImportSlot`).
    let capsule = match T::of(object).info() {
        // SAFETY: the object keeps the array alive, and its class is frozen.
        Ok(ref info) => unsafe { to_capsule(py, info, owner, &arguments) },
        Err(error) => Err(error.into()),
    };
    capsule.map_err(|error| raised(py, error))
}

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
///         let request = DlpackArgs::try_from([stream, max_version, dl_device, copy])?;
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
    arguments: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    release_deferred_refs(py);
    free_detached();
    share_record(py)?;
    match array.info() {
        // SAFETY: the `Arc` keeps the array alive and at its address, and allows only shared access.
        Ok(ref info) => unsafe { to_capsule(py, info, InReach::new(Arc::clone(array), None), arguments) },
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
/// As [`dlpack::export`](crate::protocols::dlpack::export), for the description of a [shared](Ownership::Shared) array.
pub(crate) unsafe fn to_capsule<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    owner: impl ExportOwner,
    arguments: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    let own = info.device();
    let wanted = arguments.device.map_or(own, Device::normalized);
    if wanted != own && wanted != Device::CPU {
        let or_host = if own == Device::CPU { "" } else { ", or CPU (1)" };
        let allowed = format!("{own}, where the array is{or_host}");
        return Err(Error::new(ErrorKind::Device, "dl_device", wanted, allowed).into());
    }
    // The stream is checked even if it has no effect because the result is a copy. An invalid number is a mistake.
    // SAFETY: the protocol requires the consumer to pass its own stream; Python code cannot guarantee it.
    let consumer = unsafe { StreamHandle::from_dlpack(own.device_type, arguments.stream) };
    let consumer = consumer.map_err(|error| no_such_stream(py, error))?;
    let _consumer = (own != Device::CPU).then(|| NamedConsumer::new(consumer));
    let reachable = wanted == own || own.device_type.is_host_accessible();
    if arguments.copy == Some(true) || !reachable {
        // SAFETY: as the caller promises.
        return unsafe { copy_to_capsule(py, info, wanted, consumer, arguments) };
    }
    // A consumer on the host passes no stream and reads immediately.
    if wanted != own || own.device_type.is_host_accessible() && arguments.stream.is_none() {
        refuse_capture(info, consumer)?;
        waiting(py, info, || hand_over(info, None))?;
    } else if consumer == StreamHandle::NothingPending {
        // The consumer promises, by the protocol, that it needs no order.
        poll_in_passing();
    } else {
        hand_over(info, info.consumer(consumer))?;
    }
    // Pinned or managed memory, for a consumer that accepts only host memory.
    let on_host = (wanted != own).then(|| {
        let mut on_host = info.clone().with_work(Placement::Nothing);
        on_host.description.device = Device::CPU;
        on_host
    });
    // SAFETY: as the caller promises.
    unsafe { capsule(py, on_host.as_ref().unwrap_or(info), owner, Ownership::Shared, arguments.versioned) }
}

/// As [`to_capsule`], but copies to the host or on the array's own device.
///
/// # Safety
///
/// As [`to_capsule`].
#[cold]
unsafe fn copy_to_capsule<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    wanted: Device,
    consumer: StreamHandle,
    arguments: &DlpackArgs,
) -> PyResult<Bound<'py, PyAny>> {
    if arguments.copy == Some(false) {
        let allowed = "None or True, because the array has to be copied to get there";
        let found = format!("False with dl_device {wanted} for an array on {}", info.device());
        return Err(Error::new(ErrorKind::CopyRequired, "copy", found, allowed).into());
    }
    // The copy reads the memory, so Rust code must not write it meanwhile.
    let claim = Claim::by_host(shared_elements(info), false)?;
    refuse_capture(info, consumer)?;
    if wanted == Device::CPU {
        // A short copy on the host is not worth a switch of threads.
        let is_short = info.device() == Device::CPU && info.nbytes() <= SHORT_COPY;
        let (info, buffer) =
            if is_short { copied(info, &claim) } else { detached(py, || copied(info, &claim)) }?;
        // SAFETY: the description is that of the buffer, and nobody else has the buffer.
        return unsafe { capsule(py, &info, buffer, Ownership::Copied, arguments.versioned) };
    }
    // SAFETY: the memory is live, as the caller promises.
    let (buffer, info) =
        detached(py, || unsafe { crate::memory::copy::duplicate::duplicate(info, consumer) })?;
    // SAFETY: as above.
    unsafe { capsule(py, &info, buffer, Ownership::Copied, arguments.versioned) }
}

/// Copies an array to host memory, contiguous in C order.
fn copied(info: &ArrayInfo, claim: &Claim) -> PyResult<(ArrayInfo, HostBuffer)> {
    let flat = info.without_struct_type()?;
    let buffer = if flat.device().device_type == DeviceType::CUDA {
        let element = ElementType::from_whole_bytes(flat.dtype(), flat.is_padded())?;
        // SAFETY: the array guarantees that its memory is live.
        unsafe { crate::memory::copy::fetch::fetch_buffer(&flat, &element, Order::C) }?
    } else {
        crate::memory::host::cells::check_readable(flat.work(), claim)?;
        // SAFETY: as above, and the host can access the memory.
        unsafe { HostBuffer::copy_of(&flat, Order::C) }?
    };
    let info = flat.shape().to_vec().finish(buffer.describe()?)?;
    Ok((info, buffer))
}

/// Exports an array to a capsule, which owns the tensor until a consumer takes it.
///
/// # Safety
///
/// As [`dlpack::export`](crate::protocols::dlpack::export).
unsafe fn capsule<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    owner: impl ExportOwner,
    ownership: Ownership,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if versioned {
        // SAFETY: as the caller promises.
        wrap(py, unsafe { export_kept::<Versioned, _>(info, owner, ownership) }?)
    } else {
        // SAFETY: as the caller promises.
        wrap(py, unsafe { export_kept::<Legacy, _>(info, owner, ownership) }?)
    }
}

/// Creates the capsule of a tensor that this crate has exported.
fn wrap<A: TensorAbi>(py: Python<'_>, tensor: ManagedTensor<A>) -> PyResult<Bound<'_, PyAny>> {
    let tensor = tensor.into_non_null();
    let (pointer, name) = (tensor.cast(), A::CAPSULE_NAME);
    // SAFETY: the destructor gets a capsule with an exported tensor of this form.
    let capsule =
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destructor::<A>)) };
    capsule.map(Bound::into_any).inspect_err(|_| {
        // SAFETY: no capsule has the pointer, so this code still owns it.
        drop(unsafe { ManagedTensor::from_raw(tensor.as_ptr().cast::<A>()) });
    })
}

/// Releases the tensor of a capsule that no consumer took. The current exception stays set.
///
/// # Safety
///
/// Python calls this once for a capsule that `wrap::<A>` made, with the thread attached.
unsafe extern "C" fn destructor<A: TensorAbi>(capsule: *mut ffi::PyObject) {
    // Consumers rename a capsule that they take.
    // SAFETY: the object is alive, as the caller promises.
    let Some(tensor) = (unsafe { capsule_pointer(capsule, A::CAPSULE_NAME) }) else { return };
    // SAFETY: the name is unchanged, so `wrap` set the pointer and no consumer took it.
    let tensor = unsafe { ManagedTensor::from_raw(tensor.as_ptr().cast::<A>()) };
    // SAFETY: `wrap` is given tensors of this crate alone.
    let release = || unsafe { drop_unconsumed(tensor) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(release) };
}

/// The parsed arguments of `__dlpack__`. The default value is a call without arguments.
///
/// They are not yet checked against an array. For an example see [`export`](crate::python::export()).
#[derive(Clone, Copy, Debug, Default)]
pub struct DlpackArgs {
    pub(crate) stream: Option<i128>,
    pub(crate) versioned: bool,
    pub(crate) device: Option<Device>,
    pub(crate) copy: Option<bool>,
}

impl TryFrom<[Option<&Bound<'_, PyAny>>; 4]> for DlpackArgs {
    type Error = PyErr;

    /// Parses the arguments of a call, in the order `stream`, `max_version`, `dl_device`, `copy`. `None` of Rust and of
    /// Python mean the same.
    ///
    /// # Errors
    ///
    /// `TypeError` for a value of the wrong type, `ArrayError` for a number out of range. Exceptions of the value are passed
    /// on.
    fn try_from(arguments: [Option<&Bound<'_, PyAny>>; 4]) -> PyResult<Self> {
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

/// The methods of the protocols, and no others. Run as a test.
///
/// ```
/// use interop_core::{CudaArray, HostVec};
/// use pyo3::ffi::c_str;
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len], export, pyclass)]
/// struct Samples { #[cuda_array(data)] values: HostVec<f32>, len: usize }
///
/// #[pymethods]
/// impl Samples {
///     fn __len__(&self) -> usize { self.len }
///     fn __eq__(&self, other: &Self) -> bool { self.len == other.len }
/// }
///
/// Python::initialize();
/// Python::attach(|py| -> PyResult<()> {
///     let samples = Bound::new(py, Samples { values: HostVec::from([1.0_f32, 2.0]), len: 2 })?;
///     let own = pyo3::types::PyDict::new(py);
///     own.set_item("samples", samples)?;
///     let check = |code| py.eval(code, Some(&own), None)?.extract::<bool>();
///     assert!(check(c_str!("len(samples) == 2 and samples == samples"))?);
///     assert!(check(c_str!("'dltensor' in repr(samples.__dlpack__())"))?);
///     assert!(check(c_str!("memoryview(samples).tolist() == [1.0, 2.0]"))?);
///     // CUDA cannot reach the memory of a `HostVec`.
///     assert!(check(c_str!("not hasattr(samples, '__cuda_array_interface__')"))?);
///     let new = c_str!("sorted(set(dir(samples)) - set(dir(object)) - {'__len__', '__module__', '__buffer__', '__release_buffer__'})");
///     let new: Vec<String> = py.eval(new, Some(&own), None)?.extract()?;
///     assert_eq!(
///         new,
///         [
///             "__array__",
///             "__cuda_array_interface__",
///             "__dlpack__",
///             "__dlpack_c_exchange_api__",
///             "__dlpack_device__",
///             "__float__",
///             "__int__",
///             "__jax_array__",
///         ],
///     );
///     Ok(())
/// })
/// # .unwrap();
/// ```
#[cfg(all(doctest, feature = "derive"))]
struct Methods;
