//! The way of a result into the library that its object is to be of.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray`, and tables are foreign code")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use pyo3::{ffi, intern};

use crate::array::device::{Device, DeviceType};
use crate::array::dims::Dims;
use crate::array::info::ArrayInfo;
use crate::array::stream::{PendingWork, StreamHandle};
use crate::cuda;
use crate::cuda::release::erased::contain_panic;
use crate::derive::cuda_array::CudaArray;
use crate::error::{Error, ErrorKind};
use crate::process::counters;
use crate::protocols::dlpack::abi::{TensorAbi, Versioned};
use crate::protocols::dlpack::export::{Ownership, export};
use crate::python::class::exported_array::into_checked_object;
use crate::python::class::exported_array::{AnyThread, ExportedArray};
use crate::python::class::numpy::view_of;
use crate::python::detach::free_detached;
use crate::python::exception_state::with_saved_exception;
use crate::python::export::dlpack::waiting;
use crate::python::export::numpy_api::{Api, extents, type_number};
use crate::python::import::exchange_table::{Table, object_of, work_stream};
use crate::python::import::kind::Kind;
use crate::python::import::library_kind::{Library, library};
use crate::python::py_owner::release_deferred_refs;

/// An array as an object of a library.
///
/// Work that is pending on it comes before later work of the library: on the stream that its exchange table names, or on
/// the one that its `from_dlpack` tells `__dlpack__`. The host waits for what it is about to read.
///
/// # Errors
///
/// As [`CudaArray::info`], `ArrayError` for an array that the library cannot have, and what the library raises. The array is
/// dropped once, then or when the exception that has it goes.
pub(crate) fn into_library<'py, A>(py: Python<'py>, kind: &Kind, array: A) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    release_deferred_refs(py);
    free_detached();
    let info = array.info()?;
    match kind {
        Kind::NumPy => into_numpy(py, info, array),
        Kind::PyTorch(table) => {
            check_writable(&info, Library::PyTorch)?;
            check_forwards(&info)?;
            match table {
                Some(table) => by_table(py, *table, &plainly_placed(py, info)?, array),
                None => by_from_dlpack(&library(py, Library::PyTorch)?, Plain::of(py, info, array)?),
            }
        }
        Kind::CuPy => {
            let cupy = library(py, Library::CuPy)?;
            check_writable(&info, Library::CuPy)?;
            check_on_device(&info)?;
            by_from_dlpack(&cupy, array)
        }
        Kind::Jax => by_from_dlpack(&library(py, Library::Jax)?, Plain::of(py, info, array)?),
        Kind::Table(table) => by_table(py, *table, &info, array),
        Kind::FromDlpack(module) => by_from_dlpack(module.bind(py), array),
        Kind::Neutral => into_checked_object(py, array),
    }
}

/// Through the function `from_dlpack` of a class, a namespace or a package, which gets an object of our own class.
fn by_from_dlpack<'py, A>(library: &Bound<'py, PyAny>, array: A) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    let py = library.py();
    let object = into_checked_object(py, array)?;
    library.call_method1(intern!(py, "from_dlpack"), (object,))
}

/// Refuses a read-only array for a library whose arrays can always be written.
fn check_writable(info: &ArrayInfo, library: Library) -> PyResult<()> {
    if info.is_writable_by_owner() || info.numel() == 0 {
        return Ok(());
    }
    let allowed = format!("a writable array: {} has no read-only ones", library.names().0);
    let error = Error::new(ErrorKind::ReadOnly, "the result", "a read-only array", allowed);
    Err(error
        .with_python_hint("return a copy (`HostVec<T>`), or `python::NumPy`, whose arrays can be read-only")
        .into())
}

/// Refuses axes that go backwards, over which `PyTorch` ends the process up to 2.11 (pytorch/pytorch#188023).
fn check_forwards(info: &ArrayInfo) -> PyResult<()> {
    let mut steps = info.shape().iter().zip(info.strides());
    let backwards = steps.position(|(extent, stride)| *extent > 1 && *stride < 0);
    let Some(axis) = backwards.filter(|_| info.numel() > 0) else { return Ok(()) };
    let (place, found) = (format!("strides[{axis}]"), info.strides()[axis]);
    let error = Error::new(ErrorKind::Strides, place, found, "0 and up, as PyTorch has no negative strides");
    Err(error
        .with_python_hint("return a copy (`HostVec<T>`), or `python::NumPy`, whose arrays may go backwards")
        .into())
}

fn check_on_device(info: &ArrayInfo) -> PyResult<()> {
    if info.device() != Device::CPU {
        return Ok(());
    }
    let allowed = "memory of a CUDA device, which CuPy's arrays are in";
    let error = Error::new(ErrorKind::Device, "the result", info.device(), allowed);
    Err(error.with_python_hint("return `python::NumPy` for memory of the host").into())
}

/// `PyTorch` and JAX know memory of the host and of devices. Pinned memory is the host's there, and is waited for; managed
/// memory is that of the device which it was allocated for.
fn plainly_placed(py: Python<'_>, info: ArrayInfo) -> PyResult<ArrayInfo> {
    match info.device().device_type {
        DeviceType::CUDA_HOST => on_host(py, info),
        DeviceType::CUDA_MANAGED => {
            let known = cuda::pointer_attributes(info.address())?;
            Ok(ArrayInfo { device: Device::cuda(known.map_or(0, |known| known.ordinal())), ..info })
        }
        _ => Ok(info),
    }
}

/// An array that is described for good, by [`plainly_placed`].
struct Plain<A> {
    info: ArrayInfo,
    /// For its drop.
    _array: A,
}

impl<A> Plain<A> {
    fn of(py: Python<'_>, info: ArrayInfo, array: A) -> PyResult<Self> {
        Ok(Self { info: plainly_placed(py, info)?, _array: array })
    }
}

// SAFETY: 1 to 3: as the array, which described itself so, and which nobody gets at; the host reaches pinned memory, and the
// device its managed memory.
unsafe impl<A: CudaArray> CudaArray for Plain<A> {
    fn info(&self) -> crate::Result<ArrayInfo> {
        Ok(self.info.clone())
    }
}

/// The same memory called the host's, after the work that is pending on it.
fn on_host(py: Python<'_>, info: ArrayInfo) -> PyResult<ArrayInfo> {
    waiting(py, &info, || cuda::synchronize_for_host(&info))?;
    Ok(ArrayInfo { device: Device::CPU, stream: PendingWork::on(StreamHandle::NothingPending), ..info })
}

/// Through the exchange table of the library's class.
///
/// The protocol says that a tensor is the library's from the call on, and libraries differ where the call fails: some have
/// released it then, some have not. So the array is in a place that both sides have: it is taken out where nobody let go.
fn by_table<'py, A>(py: Python<'py>, table: Table, info: &ArrayInfo, array: A) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    if info.device() != Device::CPU {
        match work_stream(table, py, info.device()) {
            Some(stream) => cuda::make_consumer_wait(info, stream)?,
            None if info.device().device_type.is_host_accessible() => {
                waiting(py, info, || cuda::synchronize_for_host(info))?;
            }
            None => cuda::make_consumer_wait(info, StreamHandle::LegacyDefault)?,
        }
    }
    let ours = Arc::new(Mutex::new(Some(array)));
    // SAFETY: 1 and 2: the array is in the owner, where nobody gets at it but to drop it: the tensor is the only one that has it.
    let tensor = unsafe { export::<Versioned, _>(info, Arc::clone(&ours), Ownership::Owned) }
        .map_err(|refused| refused.error)?
        .into_raw();
    // SAFETY: made above, and handed over here.
    let made = unsafe { object_of(table, py, tensor) };
    if made.is_err() && Arc::strong_count(&ours) > 1 {
        // SAFETY: the owner of the tensor is still there, so it was not released; its library has failed, and uses it no more.
        unsafe { disown(tensor) };
        let array = ours.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(array);
    }
    made
}

/// Makes the release of a tensor do nothing. The struct stays where it is, about 150 bytes, because a library that was handed
/// the tensor and failed may still release it, as when its exception goes.
///
/// # Safety
///
/// `tensor` is an export of ours that was not released, and no other thread uses it.
unsafe fn disown(tensor: *mut Versioned) {
    unsafe extern "C" fn nothing(_: *mut Versioned) {}
    let deleter = Versioned::deleter(tensor).cast_mut();
    // SAFETY: the place of the deleter in a live struct of our own.
    unsafe { deleter.write(Some(nothing)) };
    counters::EXPORTS.sub();
}

/// As an array of `NumPy`'s, by its C API; by the buffer protocol for elements that have no number there.
fn into_numpy<A>(py: Python<'_>, info: ArrayInfo, array: A) -> PyResult<Bound<'_, PyAny>>
where
    A: CudaArray + AnyThread,
{
    if !info.device().device_type.is_host_accessible() {
        let allowed = "memory that the host can reach, for an array of NumPy";
        let error = Error::new(ErrorKind::Device, "the result", info.device(), allowed);
        let error = error.with_python_hint(
            "return `python::CuPy`, `python::PyTorch` or `python::Jax`, or copy the elements to the host by `to_vec`",
        );
        return Err(error.into());
    }
    let info = if info.device() == Device::CPU { info } else { on_host(py, info)? };
    let number = if info.struct_type().is_some() { None } else { type_number(info.dtype()) };
    match (Api::get(py)?, number) {
        (Some(api), Some(number)) => {
            let base = keeper(py, array)?;
            // SAFETY: the base has the array, and never lets go of it.
            unsafe { over(api, base, number, &info) }
        }
        _ => by_buffer(py, &info, array),
    }
}

/// The name of the capsule that owns what an array of `NumPy`'s is over.
const KEEPER: &CStr = c"interop_core.result";

/// A capsule that owns an array until it goes: a quarter of what an object of a class costs.
fn keeper<A: AnyThread>(py: Python<'_>, array: A) -> PyResult<Bound<'_, PyAny>> {
    let place = Box::into_raw(Box::new(array));
    // SAFETY: a pointer that is not null, and a static name.
    let capsule = unsafe { ffi::PyCapsule_New(place.cast(), KEEPER.as_ptr(), Some(release::<A>)) };
    // SAFETY: a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    match capsule {
        Ok(capsule) => {
            counters::EXPORTS.add();
            Ok(capsule)
        }
        Err(error) => {
            // SAFETY: the box of above, which no capsule has.
            drop(unsafe { Box::from_raw(place) });
            Err(error)
        }
    }
}

/// The destructor of a [`keeper`]. An exception that is on its way stays as it is.
///
/// # Safety
///
/// Python calls this once for a capsule that `keeper::<A>` made, with the thread attached.
unsafe extern "C" fn release<A: AnyThread>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule of this name, as the caller promises.
    let place = unsafe { ffi::PyCapsule_GetPointer(capsule, KEEPER.as_ptr()) };
    if place.is_null() {
        // Somebody has renamed it: what is in it stays.
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_Clear() };
        return;
    }
    counters::EXPORTS.sub();
    // SAFETY: the box of `keeper`, once.
    let array = unsafe { Box::from_raw(place.cast::<A>()) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(|| contain_panic(|| drop(array))) };
}

/// # Safety
///
/// `base` keeps the memory that the facts describe.
unsafe fn over<'py>(
    api: Api,
    base: Bound<'py, PyAny>,
    number: c_int,
    info: &ArrayInfo,
) -> PyResult<Bound<'py, PyAny>> {
    let item = (info.dtype().packed_bits() / 8) as isize;
    let shape = extents(info.shape());
    let strides = Dims::filled(info.ndim(), |numbers| {
        for (number, stride) in numbers.iter_mut().zip(info.strides()) {
            // What does not fit is the step of an axis along which nobody goes.
            *number = stride.wrapping_mul(item);
        }
    });
    // An array without elements is nowhere, and null would ask for new memory.
    let address = if info.numel() == 0 { align_of::<u128>() } else { info.address() };
    let data: *mut c_void = with_exposed_provenance_mut(address);
    // SAFETY: the memory as the facts say, which the base keeps.
    unsafe { api.array_over(base, number, (data, info.is_writable_by_owner()), (&shape, &strides)) }
}

/// Structs, and types that `NumPy` learned from another package.
#[cold]
fn by_buffer<'py, A>(py: Python<'py>, info: &ArrayInfo, array: A) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    let numpy = library(py, Library::NumPy)?.cast_into::<PyModule>()?;
    let object = into_checked_object(py, array)?;
    if info.struct_type().is_some() {
        // Nothing else tells of fields, so what is wrong with the buffer is what is wrong.
        return numpy.call_method1(intern!(py, "asarray"), (PyMemoryView::from(&object)?,));
    }
    if info.dtype().typestr().is_none() {
        // It teaches NumPy its types, once it is imported by somebody.
        match py.import(intern!(py, "ml_dtypes")) {
            Err(error) if !error.is_instance_of::<PyImportError>(py) => return Err(error),
            _ => {}
        }
    }
    view_of(&numpy, object.cast::<ExportedArray>()?, info.dtype())
}
