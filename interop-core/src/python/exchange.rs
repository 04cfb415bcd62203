//! Import through the C exchange table of the object's type.
#![expect(unsafe_code, reason = "calls the functions of foreign tables")]

use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::types::Table;
use crate::device::Device;
use crate::dlpack::{DLPackExchangeAPI, ManagedTensor, Versioned};
use crate::stream::StreamHandle;

/// The stream that the table's library works on; `None` when the table does not say.
pub(super) fn work_stream(table: Table, py: Python<'_>, device: Device) -> Option<StreamHandle> {
    type CurrentWorkStream = unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int;
    let place = table.0.as_ptr().wrapping_byte_add(offset_of!(DLPackExchangeAPI, current_work_stream));
    // SAFETY: the place of a member of a table of our major version; null is `None`.
    let current = unsafe { place.cast::<Option<CurrentWorkStream>>().read() }?;
    let mut stream = core::ptr::null_mut();
    // SAFETY: the thread is attached; a place for the stream.
    if unsafe { current(device.device_type.0, device.device_id, &raw mut stream) } != 0 {
        // The method is asked instead, which says what is wrong.
        drop(PyErr::take(py));
        return None;
    }
    // Null is the legacy default stream.
    Some(StreamHandle::from_raw(stream.addr()))
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
    if failed || tensor.is_null() {
        let error = PyErr::fetch(object.py());
        return if error.is_instance_of::<PyBufferError>(object.py()) { Ok(None) } else { Err(error) };
    }
    // SAFETY: the table hands over a tensor that nobody else releases.
    Ok(Some(unsafe { ManagedTensor::from_raw(tensor) }))
}
