//! Converts an array to an object of a library.
#![expect(unsafe_code, reason = "exports rely on the promises of `CudaArray`, and tables are foreign code")]

use core::ffi::{CStr, c_int, c_void};
use core::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::{ffi, intern};

use crate::array::device::{Device, DeviceType};
use crate::array::dims::Dims;
use crate::array::info::ArrayInfo;
use crate::array::stream::PendingWork;
use crate::cuda;
use crate::cuda::release::scope::contain_panic;
use crate::derive::cuda_array::CudaArray;
use crate::error::{Error, ErrorKind};
use crate::memory::maybe_dangling::MaybeDangling;
use crate::memory::owner::Owner;
use crate::process::counters;
use crate::protocols::dlpack::abi::Versioned;
use crate::protocols::dlpack::export::{Ownership, export_kept};
use crate::protocols::dlpack::export_owner::ExportedValue;
use crate::python::class::exported_array::{AnyThread, ExportedArray, numpy_view};
use crate::python::detach::free_detached;
use crate::python::export::dlpack::waiting;
use crate::python::export::numpy::{Api, extents, type_number};
use crate::python::import::exchange_table::{Table, TableStream, object_of, table_stream};
use crate::python::import::library_kind::{Library, library};
use crate::python::import::package::Kind;
use crate::python::import::package::Package;
use crate::python::interpreter::with_saved_exception;
use crate::python::py_owner::release_deferred_refs;

/// Converts an array to an object of a library.
///
/// Later work of the library waits for the work that is pending on the array. It waits on the stream that the library's
/// exchange table returns, or on the one that its `from_dlpack` passes to `__dlpack__`. If the host will read the
/// memory, this call waits.
///
/// # Errors
///
/// As [`CudaArray::info`], and `ArrayError` for an array that the library cannot represent. Exceptions of the library
/// are passed on. The array is dropped once, at the error or together with the exception that refers to it.
pub(crate) fn into_library<'py, A>(py: Python<'py>, kind: &Kind, array: A) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    release_deferred_refs(py);
    free_detached();
    // Wrapped before it is described: a plain move would invalidate addresses in its boxes.
    let array = MaybeDangling::new(array);
    // By reference, because a description has about two hundred bytes.
    match array.get().info() {
        Ok(ref mut info) => described_into_library(py, kind, info, array),
        Err(error) => Err(error.into()),
    }
}

/// As [`into_library`], for an array with this description.
fn described_into_library<'py, A>(
    py: Python<'py>,
    kind: &Kind,
    info: &mut ArrayInfo,
    array: MaybeDangling<A>,
) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    match kind {
        Kind::NumPy => into_numpy(py, info, array),
        Kind::PyTorch(table) => {
            check_writable(info, Library::PyTorch)?;
            check_forwards(info)?;
            place_plainly(py, info)?;
            match table {
                Some(table) => by_table(py, (*table, Package::PyTorch), info, array),
                None => by_from_dlpack(&library(py, Library::PyTorch)?, info, Plain::of(info, array)),
            }
        }
        Kind::CuPy => {
            let cupy = library(py, Library::CuPy)?;
            check_writable(info, Library::CuPy)?;
            check_on_device(info)?;
            by_from_dlpack(&cupy, info, array.into_inner())
        }
        Kind::Jax => {
            let jax = library(py, Library::Jax)?;
            place_plainly(py, info)?;
            by_from_dlpack(&jax, info, Plain::of(info, array))
        }
        Kind::Table(table) => by_table(py, (*table, Package::Other), info, array),
        Kind::FromDlpack(module) => by_from_dlpack(module.bind(py), info, array.into_inner()),
        Kind::Neutral => {
            Ok(Bound::new(py, ExportedArray::from_described(array.into_inner(), info))?.into_any())
        }
    }
}

/// Calls the function `from_dlpack` of a class, a namespace or a package with an object of this crate's class.
fn by_from_dlpack<'py, A>(
    library: &Bound<'py, PyAny>,
    info: &ArrayInfo,
    array: A,
) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    let py = library.py();
    let object = Bound::new(py, ExportedArray::from_described(array, info))?;
    library.call_method1(intern!(py, "from_dlpack"), (object,))
}

/// Rejects a read-only array for a library whose arrays are always writable.
fn check_writable(info: &ArrayInfo, library: Library) -> PyResult<()> {
    if info.is_writable_by_owner() || info.numel() == 0 {
        return Ok(());
    }
    let allowed = format!("a writable array, because {} has no read-only arrays", library.names().0);
    let error = Error::new(ErrorKind::ReadOnly, "the result", "a read-only array", allowed);
    Err(error
        .with_python_hint("return a copy (`HostVec<T>`), or `python::NumPy`, whose arrays can be read-only")
        .into())
}

/// Rejects negative strides, for which `PyTorch` up to 2.11 aborts the process (pytorch/pytorch#188023).
fn check_forwards(info: &ArrayInfo) -> PyResult<()> {
    let mut steps = info.shape().iter().zip(info.strides());
    let backwards = steps.position(|(extent, stride)| *extent > 1 && *stride < 0);
    let Some(axis) = backwards.filter(|_| info.numel() > 0) else { return Ok(()) };
    let (place, found) = (format!("strides[{axis}]"), info.strides()[axis]);
    let error = Error::new(ErrorKind::Strides, place, found, "0 and up, as PyTorch has no negative strides");
    Err(error
        .with_python_hint(
            "return a copy (`HostVec<T>`), or `python::NumPy`, whose arrays can have negative strides",
        )
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

/// Changes the device to one that `PyTorch` and JAX know: the host or a CUDA device.
///
/// Pinned memory becomes host memory, and this call waits for its pending work. Managed memory becomes memory of the
/// device for which it was allocated.
fn place_plainly(py: Python<'_>, info: &mut ArrayInfo) -> PyResult<()> {
    match info.device().device_type {
        DeviceType::CUDA_HOST => put_on_host(py, info)?,
        DeviceType::CUDA_MANAGED => {
            let known = cuda::pointer_attributes(info.address)?;
            info.device = Device::cuda(known.map_or(0, |known| known.ordinal()));
        }
        _ => {}
    }
    Ok(())
}

/// An array with the description that [`place_plainly`] changed.
struct Plain<A> {
    info: ArrayInfo,
    /// Held until this struct is dropped.
    _array: MaybeDangling<A>,
}

impl<A> Plain<A> {
    fn of(info: &ArrayInfo, array: MaybeDangling<A>) -> Self {
        Self { info: info.clone(), _array: array }
    }
}

// SAFETY: 1 to 4: as for the array, which returned this description, which is only moved as bytes, and which nothing
// accesses. The host can access pinned memory, and the device its managed memory.
unsafe impl<A: CudaArray> CudaArray for Plain<A> {
    fn info(&self) -> crate::Result<ArrayInfo> {
        Ok(self.info.clone())
    }
}

/// Describes the same memory as host memory. Waits for pending work.
fn put_on_host(py: Python<'_>, info: &mut ArrayInfo) -> PyResult<()> {
    waiting(py, info, || cuda::synchronize_for_host(info))?;
    info.device = Device::CPU;
    info.pending = PendingWork::NOTHING;
    Ok(())
}

/// Passes the array to the exchange table of the library's class.
///
/// By the protocol, the library owns the tensor from the call on. If the call fails, some libraries have released the
/// tensor and others have not. So the array is in an `Arc` that this function shares, and is taken out and dropped here.
/// A tensor that the library neither releases then nor later stays among the live exports.
fn by_table<'py, A>(
    py: Python<'py>,
    (table, package): (Table, Package),
    info: &ArrayInfo,
    array: MaybeDangling<A>,
) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    match info.device().device_type {
        DeviceType::CPU => {}
        DeviceType::CUDA => match (table_stream(table, py, info.device())?, package.stream_of_null()) {
            (TableStream::Handle(stream), _) | (TableStream::Null, Some(stream)) => {
                cuda::make_consumer_wait(info, stream)?;
            }
            (TableStream::Null | TableStream::Absent, _) => cuda::make_context_wait_for(info)?,
        },
        _ => waiting(py, info, || cuda::synchronize_for_host(info))?,
    }
    let ours = Arc::new(Mutex::new(Some(array)));
    let owner = ExportedValue::<_, true>(Arc::clone(&ours));
    // SAFETY: 1 and 2: the array is in the owner, where it is only accessed to be dropped. No other tensor has it.
    let tensor = unsafe { export_kept::<Versioned, _>(info, owner, Ownership::Owned) }
        .map_err(|refused| refused.error)?
        .into_raw();
    // SAFETY: the tensor was created above, and its ownership is passed on here.
    let made = unsafe { object_of(table, py, tensor) };
    if made.is_err() {
        let array = ours.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The library may have launched work on the memory before it failed.
        let scope = if info.device() == Device::CPU { None } else { cuda::release_scope_of(info) };
        drop(Owner::new(array).after(scope));
    }
    made
}

/// Converts to a `NumPy` array by the C API, or by the buffer protocol for element types without a type number.
fn into_numpy<'py, A>(
    py: Python<'py>,
    info: &mut ArrayInfo,
    array: MaybeDangling<A>,
) -> PyResult<Bound<'py, PyAny>>
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
    if info.device() != Device::CPU {
        put_on_host(py, info)?;
    }
    let number = if info.struct_type().is_some() { None } else { type_number(info.dtype()) };
    match (Api::get(py)?, number) {
        (Some(api), Some(number)) => {
            let base = keeper(py, array)?;
            // SAFETY: the base owns the array as long as it lives.
            unsafe { over(api, base, number, info) }
        }
        _ => by_buffer(py, info, array.into_inner()),
    }
}

/// The name of the capsule that owns the memory of a `NumPy` array.
const KEEPER: &CStr = c"interop_core.result";

/// Creates a capsule that owns an array. It costs a quarter of an object of a class.
fn keeper<A: AnyThread>(py: Python<'_>, array: MaybeDangling<A>) -> PyResult<Bound<'_, PyAny>> {
    let place = Box::into_raw(Box::new(array));
    // SAFETY: the pointer is not null, and the name is static.
    let capsule = unsafe { ffi::PyCapsule_New(place.cast(), KEEPER.as_ptr(), Some(release::<A>)) };
    // SAFETY: a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    match capsule {
        Ok(capsule) => {
            counters::EXPORTS.add();
            Ok(capsule)
        }
        Err(error) => {
            // SAFETY: the box was created above, and no capsule has it.
            drop(unsafe { Box::from_raw(place) });
            Err(error)
        }
    }
}

/// The destructor of a [`keeper`]. The current exception stays set.
///
/// # Safety
///
/// Python calls this once for a capsule that `keeper::<A>` created, with the thread attached.
unsafe extern "C" fn release<A: AnyThread>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that was created with this name, as the caller promises.
    let place = unsafe { ffi::PyCapsule_GetPointer(capsule, KEEPER.as_ptr()) };
    if place.is_null() {
        // Other code has renamed the capsule, so its contents are leaked.
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_Clear() };
        return;
    }
    counters::EXPORTS.sub();
    // SAFETY: this is the box of `keeper`, and it is freed once.
    let array = unsafe { Box::from_raw(place.cast::<MaybeDangling<A>>()) };
    // SAFETY: the thread is attached.
    unsafe { with_saved_exception(|| contain_panic(|| drop(array))) };
}

/// # Safety
///
/// `base` keeps the described memory alive.
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
            // A product that overflows is the stride of an axis that is never stepped along.
            *number = stride.wrapping_mul(item);
        }
    });
    // An array without elements has no address, and null would make NumPy allocate.
    let address = if info.numel() == 0 { align_of::<u128>() } else { info.address() };
    let data: *mut c_void = with_exposed_provenance_mut(address);
    // SAFETY: the base keeps the described memory alive.
    unsafe { api.array_over(base, number, (data, info.is_writable_by_owner()), (&shape, &strides)) }
}

/// Converts structs, and element types whose dtype another package registers in `NumPy`.
#[cold]
fn by_buffer<'py, A>(py: Python<'py>, info: &ArrayInfo, array: A) -> PyResult<Bound<'py, PyAny>>
where
    A: CudaArray + AnyThread,
{
    let object = Bound::new(py, ExportedArray::from_described(array, info))?;
    if info.struct_type().is_none() && info.dtype().typestr().is_none() {
        // `ml_dtypes` registers its dtypes in NumPy when it is imported.
        match py.import(intern!(py, "ml_dtypes")) {
            Err(error) if !error.is_instance_of::<PyImportError>(py) => return Err(error),
            _ => {}
        }
    }
    numpy_view(&object, info)
}
