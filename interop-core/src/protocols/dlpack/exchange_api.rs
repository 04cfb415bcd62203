//! The C exchange table of DLPack 1.2 and later, with assertions on its layout.

use core::ffi::{c_char, c_int, c_void};

use crate::protocols::dlpack::abi::{DLManagedTensorVersioned, DLPackVersion, DLTensor};

/// `DLPackExchangeAPIHeader`: the part of the table that is the same in every version.
#[derive(Debug)]
#[repr(C)]
pub struct DLPackExchangeAPIHeader {
    /// The version of the table that follows the header.
    pub version: DLPackVersion,
    /// The table of an older version, or null.
    pub prev_api: *mut Self,
}

/// The callback for a failed allocation: context, name of an exception class, message.
pub type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// `DLPackExchangeAPI`: the C functions of a Python type that exchange tensors without Python calls.
///
/// All functions return 0, or -1 on failure. None of them synchronizes. Any pointer may be null in a foreign table.
#[derive(Debug)]
#[repr(C)]
pub struct DLPackExchangeAPI {
    /// The version, and the tables of older versions.
    pub header: DLPackExchangeAPIHeader,
    /// Allocates a tensor like the prototype, whose data and strides are not read.
    pub managed_tensor_allocator: Option<
        unsafe extern "C" fn(
            prototype: *mut DLTensor,
            out: *mut *mut DLManagedTensorVersioned,
            error_ctx: *mut c_void,
            set_error: Option<SetError>,
        ) -> c_int,
    >,
    /// Returns an owned tensor of an object of this type.
    pub managed_tensor_from_py_object_no_sync: Option<
        unsafe extern "C" fn(py_object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int,
    >,
    /// Creates an object from an owned tensor.
    pub managed_tensor_to_py_object_no_sync:
        Option<unsafe extern "C" fn(tensor: *mut DLManagedTensorVersioned, out: *mut *mut c_void) -> c_int>,
    /// Returns a borrowed tensor, which is valid until control returns to the caller.
    pub dltensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(py_object: *mut c_void, out: *mut DLTensor) -> c_int>,
    /// Returns the producer's current stream.
    pub current_work_stream:
        Option<unsafe extern "C" fn(device_type: c_int, device_id: i32, out: *mut *mut c_void) -> c_int>,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use core::mem::offset_of;

    assert!(size_of::<DLPackExchangeAPIHeader>() == 16 && align_of::<DLPackExchangeAPIHeader>() == 8);
    assert!(offset_of!(DLPackExchangeAPIHeader, prev_api) == 8);
    assert!(size_of::<DLPackExchangeAPI>() == 56 && align_of::<DLPackExchangeAPI>() == 8);
    assert!(offset_of!(DLPackExchangeAPI, managed_tensor_allocator) == 16);
    assert!(offset_of!(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync) == 24);
    assert!(offset_of!(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync) == 32);
    assert!(offset_of!(DLPackExchangeAPI, dltensor_from_py_object_no_sync) == 40);
    assert!(offset_of!(DLPackExchangeAPI, current_work_stream) == 48);
};
