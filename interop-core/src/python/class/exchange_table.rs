//! The C exchange table of array classes, `__dlpack_c_exchange_api__`.
#![expect(unsafe_code, reason = "the table is made of functions that foreign C code calls")]

use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null_mut};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::PyTypeInfo;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::array::device::{Device, DeviceType};
use crate::array::dims::MAX_NDIM;
use crate::array::layout::errors::no_extents;
use crate::array::stream_handle::StreamHandle;
use crate::driver::reach::InReach;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::import::ImportSlot;
use crate::order::handover::hand_over;
use crate::order::memory_check::Verification;
use crate::protocols::dlpack::abi::{
    DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, DLTensor, MAJOR_VERSION, MINOR_VERSION,
    SetError, Versioned,
};
use crate::protocols::dlpack::export::{Ownership, export, export_kept};
use crate::protocols::dlpack::managed_tensor::ManagedTensor;
use crate::python::capsule::share_record;
use crate::python::class::array_class::ArrayMethods;
use crate::python::class::exported_array::{DescribedOwner, ExportedArray};
use crate::python::class::no_number::refuse_numbers;
use crate::python::errors::{in_words, origin};
use crate::python::export::allocate::{NewArraySpec, new_memory_of_rust};
use crate::python::import::dunder_dlpack::receive;
use crate::python::import::exchange_table::CAPSULE_NAME;
use crate::python::interpreter::{PyRef, free_detached, is_attached, release_deferred_refs};

/// `__dlpack_c_exchange_api__`: the capsule with the table of a class. `PyO3` calls this when it has created the class, which
/// is before the first export.
#[doc(hidden)]
pub fn exchange_api<T: ArrayMethods + PyTypeInfo>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    free_detached();
    share_record(py)?;
    refuse_numbers(&py.get_type::<T>())?;
    // It stays at the same address until the program ends.
    let table: &'static DLPackExchangeAPI = const {
        &DLPackExchangeAPI {
            header: DLPackExchangeAPIHeader {
                version: DLPackVersion { major: MAJOR_VERSION, minor: MINOR_VERSION },
                prev_api: null_mut(),
            },
            managed_tensor_allocator: Some(allocate),
            managed_tensor_from_py_object_no_sync: Some(own::<T>),
            managed_tensor_to_py_object_no_sync: Some(wrap),
            // Allowed to be null: consumers then use the managed tensor. A borrowed one needs memory for its shape and
            // strides that lives with the object.
            dltensor_from_py_object_no_sync: None,
            current_work_stream: Some(work_stream),
        }
    };
    // SAFETY: the table is a static, and the capsule has no destructor.
    let capsule = unsafe { PyCapsule::new_with_pointer(py, NonNull::from(table).cast(), CAPSULE_NAME) };
    capsule.map(Bound::into_any)
}

/// Runs the body of a function of the table. On an error or a panic, sets a Python exception and returns -1.
///
/// `PyO3` creates the text of an exception when it is raised, and panics if it cannot allocate. That panic is caught
/// too.
///
/// # Safety
///
/// The thread is attached.
unsafe fn status_of(run: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    // `Python::attach` is not used, because it fails while the interpreter ends and still runs code.
    // SAFETY: the thread is attached, as the caller promises.
    let py = unsafe { Python::assume_attached() };
    let raise = |error: PyErr| {
        // PyO3 does not know that the thread is attached, so it deferred the drops of Python references on the way
        // here, such as a replaced exception and all that it refers to. `try_attach` makes it drop them.
        let _ = Python::try_attach(|_| ());
        error.restore(py);
        -1
    };
    let done = catch_unwind(AssertUnwindSafe(|| run(py).map_or_else(raise, |()| 0)));
    done.unwrap_or_else(|payload| {
        // The payload is leaked, because its drop could panic again.
        core::mem::forget(payload);
        if !PyErr::occurred(py) {
            // SAFETY: the class is a static of the interpreter.
            let class = unsafe { ffi::PyExc_RuntimeError };
            // SAFETY: the arguments are a class and a C string. If the exception cannot be allocated, Python sets a
            // `MemoryError`.
            unsafe { ffi::PyErr_SetString(class, c"a panic in a `CudaArray`".as_ptr()) };
        }
        -1
    })
}

/// `managed_tensor_from_py_object_no_sync`.
///
/// # Safety
///
/// Called with the thread attached, a live object, and a pointer that is valid for writing the tensor.
unsafe extern "C" fn own<T: ArrayMethods + PyTypeInfo>(
    object: *mut c_void,
    out: *mut *mut Versioned,
) -> c_int {
    let run = |py: Python<'_>| {
        // A consumer may call only this function and release on detached threads. Without this call its arrays would
        // accumulate.
        release_deferred_refs(py);
        // SAFETY: the object is alive, as the caller promises.
        let object = unsafe { Bound::from_borrowed_ptr(py, object.cast()) };
        let Ok(array) = object.cast::<T>() else {
            let (found, class) = (origin(&object), py.get_type::<T>().fully_qualified_name()?);
            let text = format!("`py_object`: found {found}, allowed: {class}, whose exchange table this is");
            return Err(PyTypeError::new_err(text));
        };
        let info = T::of(array).info()?;
        // Of the stream that `work_stream` returns.
        hand_over(&info, info.consumer(StreamHandle::LegacyDefault))?;
        let owner = InReach::new(PyRef::new(object.unbind()), None);
        // SAFETY: the array guarantees its memory as long as it lives, and the owner keeps it alive.
        let tensor: ManagedTensor<Versioned> = unsafe { export_kept(&info, owner, Ownership::Shared) }?;
        // SAFETY: the pointer is valid for a write, as the caller promises.
        unsafe { out.write(tensor.into_raw()) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { status_of(run) }
}

/// `managed_tensor_to_py_object_no_sync`. Ownership of the tensor is taken first, so an error releases it.
///
/// # Safety
///
/// Called with the thread attached, an owned tensor, and a pointer that is valid for writing the object.
unsafe extern "C" fn wrap(tensor: *mut Versioned, out: *mut *mut c_void) -> c_int {
    let run = |py: Python<'_>| {
        let Some(tensor) = NonNull::new(tensor) else {
            return Err(PyTypeError::new_err("`tensor`: found a null pointer, allowed: an owned tensor"));
        };
        // SAFETY: the tensor is owned, and the caller transfers it.
        let tensor = unsafe { ManagedTensor::<Versioned>::from_raw(tensor.as_ptr()) };
        let mut slot = ImportSlot::new();
        let filled = receive(&mut slot, tensor, Verification::Full)?;
        let import = slot.into_import(filled);
        // SAFETY: the import keeps its memory alive outside of itself and lends nothing. It is read-only or writable.
        let array = unsafe { DescribedOwner::new(import.info().clone(), import) };
        let object = Bound::new(py, ExportedArray::new(array)?)?;
        // SAFETY: the pointer is valid for a write, as the caller promises.
        unsafe { out.write(object.into_ptr().cast()) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { status_of(run) }
}

/// `managed_tensor_allocator`: allocates zeroed memory of any device. It is the only function that is called without a
/// thread state.
///
/// # Safety
///
/// Called with a prototype whose element type, device, rank and shape can be read, a pointer that is valid for writing
/// the tensor, and a function for errors with its context.
unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut Versioned,
    context: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    // SAFETY: forwarded to the caller.
    let tensor = catch_unwind(AssertUnwindSafe(|| unsafe { zeroed(prototype) }));
    let (class, text) = match tensor {
        Ok(Ok(tensor)) => {
            // SAFETY: the pointer is valid for a write, as the caller promises.
            unsafe { out.write(tensor.into_raw()) };
            return 0;
        }
        Ok(Err(error)) => {
            let out_of_memory = error.kind() == ErrorKind::OutOfMemory;
            (if out_of_memory { c"MemoryError" } else { c"BufferError" }, error.into_python_message(in_words))
        }
        Err(payload) => {
            // The payload is leaked, because its drop could panic again and no panic may leave a C function.
            core::mem::forget(payload);
            (c"RuntimeError", "a panic in an allocation".to_owned())
        }
    };
    let text = CString::new(text).unwrap_or_default();
    if let Some(set_error) = set_error {
        // SAFETY: the function and context are the caller's, and the C strings live during the call.
        unsafe { set_error(context, class.as_ptr(), text.as_ptr()) };
    }
    -1
}

/// Allocates a tensor like the prototype. Does not read the prototype's data and strides.
///
/// # Safety
///
/// As [`allocate`].
unsafe fn zeroed(prototype: *const DLTensor) -> Result<ManagedTensor<Versioned>> {
    // SAFETY: the fields are numbers and pointers, for which every bit pattern is valid.
    let DLTensor { device, ndim, dtype, shape: extents, .. } = unsafe { prototype.read() };
    device.check()?;
    let Some(rank) = usize::try_from(ndim).ok().filter(|rank| *rank <= MAX_NDIM) else {
        return Err(Error::new(ErrorKind::Rank, "ndim", ndim, text!("0 to {MAX_NDIM}")));
    };
    if rank > 0 && extents.is_null() {
        return Err(no_extents(rank));
    }
    let mut shape = Vec::with_capacity(rank);
    for axis in 0..rank {
        // SAFETY: `axis` is less than `ndim`, so the caller guarantees this number.
        let extent = unsafe { extents.wrapping_add(axis).read() };
        let extent = usize::try_from(extent).map_err(|_| {
            Error::new(ErrorKind::Shape, format_args!("shape[{axis}]"), extent, "extents from 0 up")
        })?;
        shape.push(extent);
    }
    let (info, memory) = new_memory_of_rust(NewArraySpec { shape: &shape, dtype, device }, None)?;
    // SAFETY: the description is that of the memory, and nobody else has the memory.
    Ok(unsafe { export(&info, memory, Ownership::Owned) }?)
}

/// `current_work_stream`: returns the legacy default stream. Its handle is 1 (`CU_STREAM_LEGACY`): null would mean that no
/// stream is known. For host memory it is null.
///
/// # Safety
///
/// Called with a pointer that is valid for writing the stream.
unsafe extern "C" fn work_stream(device_type: c_int, _: i32, out: *mut *mut c_void) -> c_int {
    let device = Device { device_type: DeviceType(device_type), device_id: 0 };
    if device.is_supported() {
        let stream = if device.normalized() == Device::CPU {
            null_mut()
        } else {
            core::ptr::without_provenance_mut(StreamHandle::LegacyDefault.to_raw().unwrap_or(0))
        };
        // SAFETY: the pointer is valid for a write, as the caller promises.
        unsafe { out.write(stream) };
        return 0;
    }
    if is_attached() {
        // SAFETY: the check above found the thread attached.
        return unsafe { status_of(|_| Ok(device.check()?)) };
    }
    -1
}
