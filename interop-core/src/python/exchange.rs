//! Import through the C exchange table of the object's type.
#![expect(unsafe_code, reason = "calls the functions of foreign tables")]

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyBufferError, PySystemError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::capsule::sparing_exceptions;
use super::interpreter::is_attached;
use super::types::Table;
use crate::cuda;
use crate::device::Device;
use crate::dlpack::{DLPackExchangeAPI, ManagedTensor, Versioned};
use crate::fork::PerProcess;
use crate::stream::StreamHandle;

/// The stream that the table's library works on; `None` when the table does not say.
pub(super) fn work_stream(table: Table, py: Python<'_>, device: Device) -> Option<StreamHandle> {
    type CurrentWorkStream = unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int;
    let place = table.0.as_ptr().wrapping_byte_add(offset_of!(DLPackExchangeAPI, current_work_stream));
    // SAFETY: the place of a member of a table of our major version; null is `None`.
    let current = unsafe { place.cast::<Option<CurrentWorkStream>>().read() }?;
    let mut stream = core::ptr::null_mut();
    // SAFETY: the thread is attached; a place for the stream.
    let failed = unsafe { current(device.device_type.0, device.device_id, &raw mut stream) } != 0;
    if failed || PyErr::occurred(py) {
        // The method is asked instead, which says what is wrong.
        // Not through PyO3, which lets a panic that travels as an exception loose.
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    // Null is the legacy default stream.
    // SAFETY: the stream that the library works on.
    Some(unsafe { StreamHandle::from_raw(stream.addr()) })
}

/// The tables that were met, whose libraries can be asked for the stream that they work on. A list that grows leaves the
/// shorter one behind: there are as many as there are libraries.
static MET: PerProcess<Mutex<&[Table]>> = PerProcess::new(|_| Mutex::new(&[]));

/// Has releases of CUDA memory look whether the library of this table captures a graph at the time.
pub(super) fn watch(table: Table) {
    let mut met = MET.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !met.iter().any(|known| known.0 == table.0) {
        *met = Vec::leak([*met, &[table]].concat());
    }
    cuda::watch_captures(captures);
}

/// Whether a stream that a library works on, on this thread and this device or on any, captures a graph.
fn captures(device: Option<i32>) -> bool {
    if !is_attached() {
        return false;
    }
    // SAFETY: the thread is attached, as was just seen.
    let py = unsafe { Python::assume_attached() };
    let met = *MET.get().lock().unwrap_or_else(PoisonError::into_inner);
    let devices = device.map_or(0..cuda::device_count(), |ordinal| ordinal..ordinal + 1);
    let mut found = false;
    let ask = || {
        found = met.iter().any(|table| {
            let at_work = |ordinal| work_stream(*table, py, Device::cuda(ordinal));
            devices.clone().filter_map(at_work).any(cuda::captures)
        });
    };
    // A release may be on the way of an exception.
    // SAFETY: the thread is attached.
    unsafe { sparing_exceptions(ask) };
    found
}

/// An owned tensor of the object; `None` when the table does not offer one, or refuses this object with a `BufferError`:
/// its Python method is asked then.
pub(super) fn tensor_of(
    table: Table,
    object: &Bound<'_, PyAny>,
) -> PyResult<Option<ManagedTensor<Versioned>>> {
    let place = table
        .0
        .as_ptr()
        .wrapping_byte_add(offset_of!(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync));
    // SAFETY: the place of a member of a table of our major version; null is `None`.
    let from_object = unsafe {
        place.cast::<Option<unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int>>().read()
    };
    let Some(from_object) = from_object else { return Ok(None) };
    let mut tensor = core::ptr::null_mut();
    // SAFETY: an object of the type that offers the table, with the thread attached, and a place for the tensor.
    let failed = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) } != 0;
    if failed || tensor.is_null() || PyErr::occurred(object.py()) {
        // A table that does not say why it fails breaks the rules, but not us: `PyErr::fetch` would panic in a debug build.
        let error = PyErr::take(object.py())
            .unwrap_or_else(|| PySystemError::new_err("the exchange table failed and raised no exception"));
        if !failed && !tensor.is_null() {
            // It raised and says that it worked: the exception would surface in somebody else's call.
            // SAFETY: as below.
            drop(unsafe { ManagedTensor::from_raw(tensor) });
        }
        return if error.is_instance_of::<PyBufferError>(object.py()) { Ok(None) } else { Err(error) };
    }
    // SAFETY: the table hands over a tensor that nobody else releases.
    Ok(Some(unsafe { ManagedTensor::from_raw(tensor) }))
}
