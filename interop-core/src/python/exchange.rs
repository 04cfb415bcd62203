//! Import through the C exchange table of the object's type.
#![expect(unsafe_code, reason = "calls the functions of foreign tables")]

use core::mem::offset_of;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use super::types::Table;
use crate::dlpack::{DLPackExchangeAPI, ManagedTensor, Versioned};

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
        place.cast::<Option<unsafe extern "C" fn(*mut core::ffi::c_void, *mut *mut Versioned) -> core::ffi::c_int>>().read()
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
