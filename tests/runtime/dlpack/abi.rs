//! R54, R55: the structs and constants of `dlpack.h` 1.3.

use std::mem::{align_of, offset_of, size_of};

use interop_core::dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion,
    DLTensor, FLAG_IS_COPIED, FLAG_READ_ONLY, FLAG_SUBBYTE_PADDED, Legacy, MAJOR_VERSION, MINOR_VERSION,
    TensorAbi, Versioned,
};
use interop_core::{DType, Device};

/// Sizes and offsets as a C compiler computed them from the header.
#[test]
#[cfg(target_pointer_width = "64")]
fn structs_lie_as_in_c() {
    let sizes = [
        (size_of::<DLPackVersion>(), align_of::<DLPackVersion>(), 8, 4),
        (size_of::<Device>(), align_of::<Device>(), 8, 4),
        (size_of::<DType>(), align_of::<DType>(), 4, 2),
        (size_of::<DLTensor>(), align_of::<DLTensor>(), 48, 8),
        (size_of::<DLManagedTensor>(), align_of::<DLManagedTensor>(), 64, 8),
        (size_of::<DLManagedTensorVersioned>(), align_of::<DLManagedTensorVersioned>(), 80, 8),
    ];
    for (size, align, c_size, c_align) in sizes {
        assert_eq!((size, align), (c_size, c_align));
    }
    let offsets = [
        (offset_of!(DLPackVersion, minor), 4),
        (offset_of!(Device, device_id), 4),
        (offset_of!(DLTensor, device), 8),
        (offset_of!(DLTensor, ndim), 16),
        (offset_of!(DLTensor, dtype), 20),
        (offset_of!(DLTensor, shape), 24),
        (offset_of!(DLTensor, strides), 32),
        (offset_of!(DLTensor, byte_offset), 40),
        (offset_of!(DLManagedTensor, manager_ctx), 48),
        (offset_of!(DLManagedTensor, deleter), 56),
        (offset_of!(DLManagedTensorVersioned, manager_ctx), 8),
        (offset_of!(DLManagedTensorVersioned, deleter), 16),
        (offset_of!(DLManagedTensorVersioned, flags), 24),
        (offset_of!(DLManagedTensorVersioned, dl_tensor), 32),
    ];
    for (ours, c) in offsets {
        assert_eq!(ours, c);
    }
}

/// The table of C functions (dlpack.h 1.3, `DLPackExchangeAPI`).
#[test]
#[cfg(target_pointer_width = "64")]
fn the_exchange_table_lies_as_in_c() {
    type Header = DLPackExchangeAPIHeader;
    type Table = DLPackExchangeAPI;
    assert_eq!((size_of::<Header>(), align_of::<Header>(), offset_of!(Header, prev_api)), (16, 8, 8));
    assert_eq!((size_of::<Table>(), align_of::<Table>()), (56, 8));
    let offsets = [
        (offset_of!(Table, managed_tensor_allocator), 16),
        (offset_of!(Table, managed_tensor_from_py_object_no_sync), 24),
        (offset_of!(Table, managed_tensor_to_py_object_no_sync), 32),
        (offset_of!(Table, dltensor_from_py_object_no_sync), 40),
        (offset_of!(Table, current_work_stream), 48),
    ];
    for (ours, c) in offsets {
        assert_eq!(ours, c);
    }
}

/// The bytes of a type are those that a C compiler would produce.
#[test]
#[expect(unsafe_code, reason = "the bytes of a type are looked at")]
fn a_type_is_its_four_bytes() {
    let dtype = DType::new(5, 128, 0x0102);
    // SAFETY: both are four bytes without padding, and any bytes are valid.
    let bytes = unsafe { std::mem::transmute::<DType, [u8; 4]>(dtype) };
    assert_eq!(bytes[..2], [5, 128]);
    assert_eq!(u16::from_ne_bytes([bytes[2], bytes[3]]), 0x0102);
}

/// Versions, flags, and the names of capsules.
#[test]
fn constants_are_those_of_the_header() {
    assert_eq!((MAJOR_VERSION, MINOR_VERSION), (1, 3));
    assert_eq!((FLAG_READ_ONLY, FLAG_IS_COPIED, FLAG_SUBBYTE_PADDED), (1, 2, 4));
    assert_eq!(
        (Versioned::CAPSULE_NAME, Versioned::USED_CAPSULE_NAME),
        (c"dltensor_versioned", c"used_dltensor_versioned")
    );
    assert_eq!((Legacy::CAPSULE_NAME, Legacy::USED_CAPSULE_NAME), (c"dltensor", c"used_dltensor"));
    assert_eq!((Versioned::IS_VERSIONED, Legacy::IS_VERSIONED), (true, false));
}
