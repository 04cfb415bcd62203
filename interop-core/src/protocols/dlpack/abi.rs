//! The C structs and constants of `dlpack.h` 1.3, with assertions on their layout.
//!
//! Every field that foreign code fills is a number or a pointer, so that an unknown value is not undefined behaviour.
//!
//! Which version brought what. A minor version only adds numbers and functions, so no reader asks for one: it reads what it knows,
//! and refuses a number that it does not know.
//!
//! | since | what | read by | written by |
//! | --- | --- | --- | --- |
//! | 1.0 | [`DLManagedTensorVersioned`]: `version`, `flags` with [`FLAG_READ_ONLY`] and [`FLAG_IS_COPIED`] | `managed_tensor` | `export` |
//! | 1.1 | the type codes 7 to 17, to `float4_e2m1fn`; [`FLAG_SUBBYTE_PADDED`] | `array/dtype.rs`; `managed_tensor` | `export` |
//! | 1.2 | strides of an array with axes are never null | `managed_tensor`, which reads null as C order | `export` |
//! | 1.2 | [`DLPackExchangeAPI`], by the second of [`EXCHANGE_ATTRIBUTES`] | `python/import/exchange_table.rs` | – |
//! | 1.3 | the same by the first of them, as a capsule | the same | `python/class/exchange_table.rs` |
//!
//! To add a flag or a field, change these places; `array/dtype.rs` has those of a type code. `cargo xtask guard lists` finds them by
//! the flag `IS_COPIED`, which only an export writes, by `PADDED`, which changes what elements are, by `manager_ctx` and `MINOR_VERSION`.
//! * Here: the constant, `MINOR_VERSION`, and a row of the table above. A field is the last one of its struct.
//! * `interop-core/src/protocols/cai/mod.rs`, `interop-core/src/python/import/numpy_array.rs`: what a flag is in the other protocols.
//! * `interop-core/src/protocols/dlpack/mod.rs`: the name of the constant for users.
//! * `interop-core/src/protocols/dlpack/managed_tensor.rs`: the flag in `SUPPORTED_FLAGS`, and where it goes in the descriptor. A field is
//!   read only if the version of the tensor has it.
//! * `interop-core/src/protocols/dlpack/export.rs`: who writes it, and what the legacy form does without it.
//! * `interop-core/src/array`: a flag that changes what elements are is a field of `RawDescriptor` and of `Description`, until an export.
//! * `interop-core/src/order`, `interop-core/src/memory`, `interop-core/src/python/class`, `interop-core/src/python/export`, `interop-core/src/derive`: what cannot do
//!   with such elements says so: search for `is_padded`.
//! * `interop-core/src/python/class/exchange_table.rs`, `interop-core/src/python/import/dunder_dlpack.rs`: nothing; they state
//!   `MINOR_VERSION`, and ask for it.
//! * `interop-ipc/src/message.rs`: the flag in a message to another process, if it says what elements are.
//! * `interop-core/include/interop_dlpack.h`: the constant and the struct of C programs.
//! * `interop-core/public-api.txt`: by `cargo xtask bless`.
//! * `tests/conformance/capsules.py`: the constant, the struct and `VERSION`, which all Python tests take from here.
//! * `tests/conformance/source/dlpack.py`: a legal and an illegal case; `tests/README.md` says how to make the corpus.
//! * `tests/support/foreign_tensors.rs`, `tests/fuzz/src/tensor.rs`: structs of foreign producers, and their flags.
//! * `tests/runtime/dlpack`: the layout beside C, what is read, what is written, what is refused.
//! * `tests/python`, `tests/runtime/views`: the same with Python objects; loops over such elements.
//! * `tests/benches`: the cost, if there is one.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::offset_of;

use crate::array::device::Device;
use crate::array::dtype::DType;

/// `DLPACK_MAJOR_VERSION`. Structs of another major version cannot be read.
pub const MAJOR_VERSION: u32 = 1;

/// `DLPACK_MINOR_VERSION`, the version that exports state and follow.
pub const MINOR_VERSION: u32 = 3;

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub const FLAG_READ_ONLY: u64 = 1;

/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
pub const FLAG_IS_COPIED: u64 = 2;

/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`.
pub const FLAG_SUBBYTE_PADDED: u64 = 4;

/// `DLPackVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

/// `DLTensor`: the description of memory that another object owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// The base address. Element \[0, …, 0\] lies at `data + byte_offset`.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: Device,
    /// The number of axes.
    pub ndim: i32,
    /// The element type.
    pub dtype: DType,
    /// Pointer to `ndim` extents; may be null if `ndim` is 0.
    pub shape: *mut i64,
    /// Pointer to `ndim` strides in elements. Older producers use null for a C-contiguous array.
    pub strides: *mut i64,
    /// The offset of the first element in bytes.
    pub byte_offset: u64,
}

/// `DLManagedTensor`: the struct of a `dltensor` capsule, without version and flags.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The array.
    pub dl_tensor: DLTensor,
    /// Data of the producer.
    pub manager_ctx: *mut c_void,
    /// Releases the struct and everything it owns. May be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`: the struct of a `dltensor_versioned` capsule.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The DLPack version of the struct.
    pub version: DLPackVersion,
    /// Data of the producer.
    pub manager_ctx: *mut c_void,
    /// Releases the struct and everything it owns. May be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// `FLAG_` bits.
    pub flags: u64,
    /// The array.
    pub dl_tensor: DLTensor,
}

/// The two structs of a managed tensor: [`DLManagedTensor`] and [`DLManagedTensorVersioned`].
pub trait TensorAbi: sealed::Sealed + Sized + 'static {
    /// The name of a capsule that has not been consumed.
    const CAPSULE_NAME: &'static CStr;
    /// The name of a consumed capsule.
    const USED_CAPSULE_NAME: &'static CStr;
    /// Whether the struct has a version and flags.
    const IS_VERSIONED: bool;
    /// The offset of the `DLTensor` in the struct.
    #[doc(hidden)]
    const TENSOR_OFFSET: usize;
    /// The offset of the deleter, which is the same in every version.
    #[doc(hidden)]
    const DELETER_OFFSET: usize;

    /// Creates the struct around an array.
    #[doc(hidden)]
    fn wrap(
        dl_tensor: DLTensor,
        flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self;

    /// Pointers to the version and the flags, if the struct has them.
    #[doc(hidden)]
    fn version(this: *const Self) -> Option<(*const DLPackVersion, *const u64)>;

    /// A pointer to the deleter.
    #[doc(hidden)]
    fn deleter(this: *const Self) -> *const Option<unsafe extern "C" fn(*mut Self)> {
        this.wrapping_byte_add(Self::DELETER_OFFSET).cast()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::DLManagedTensor {}
    impl Sealed for super::DLManagedTensorVersioned {}
}

impl TensorAbi for DLManagedTensor {
    const CAPSULE_NAME: &'static CStr = c"dltensor";
    const USED_CAPSULE_NAME: &'static CStr = c"used_dltensor";
    const IS_VERSIONED: bool = false;
    const TENSOR_OFFSET: usize = offset_of!(Self, dl_tensor);
    const DELETER_OFFSET: usize = offset_of!(Self, deleter);

    fn wrap(
        dl_tensor: DLTensor,
        _flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self {
        Self { dl_tensor, manager_ctx, deleter: Some(deleter) }
    }

    fn version(_: *const Self) -> Option<(*const DLPackVersion, *const u64)> {
        None
    }
}

impl TensorAbi for DLManagedTensorVersioned {
    const CAPSULE_NAME: &'static CStr = c"dltensor_versioned";
    const USED_CAPSULE_NAME: &'static CStr = c"used_dltensor_versioned";
    const IS_VERSIONED: bool = true;
    const TENSOR_OFFSET: usize = offset_of!(Self, dl_tensor);
    const DELETER_OFFSET: usize = offset_of!(Self, deleter);

    fn wrap(
        dl_tensor: DLTensor,
        flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self {
        let version = DLPackVersion { major: MAJOR_VERSION, minor: MINOR_VERSION };
        Self { version, manager_ctx, deleter: Some(deleter), flags, dl_tensor }
    }

    fn version(this: *const Self) -> Option<(*const DLPackVersion, *const u64)> {
        let version = this.wrapping_byte_add(offset_of!(Self, version)).cast();
        Some((version, this.wrapping_byte_add(offset_of!(Self, flags)).cast()))
    }
}

// The sizes and offsets of the C structs with 64-bit pointers.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<DLPackVersion>() == 8 && align_of::<DLPackVersion>() == 4);
    assert!(offset_of!(DLPackVersion, minor) == 4);
    assert!(size_of::<Device>() == 8 && align_of::<Device>() == 4);
    assert!(offset_of!(Device, device_type) == 0 && offset_of!(Device, device_id) == 4);
    assert!(size_of::<DType>() == 4 && align_of::<DType>() == 2);
    assert!(size_of::<DLTensor>() == 48 && align_of::<DLTensor>() == 8);
    assert!(offset_of!(DLTensor, data) == 0 && offset_of!(DLTensor, device) == 8);
    assert!(offset_of!(DLTensor, ndim) == 16 && offset_of!(DLTensor, dtype) == 20);
    assert!(offset_of!(DLTensor, shape) == 24 && offset_of!(DLTensor, strides) == 32);
    assert!(offset_of!(DLTensor, byte_offset) == 40);
    assert!(size_of::<DLManagedTensor>() == 64 && align_of::<DLManagedTensor>() == 8);
    assert!(offset_of!(DLManagedTensor, dl_tensor) == 0 && offset_of!(DLManagedTensor, manager_ctx) == 48);
    assert!(offset_of!(DLManagedTensor, deleter) == 56);
    assert!(size_of::<DLManagedTensorVersioned>() == 80 && align_of::<DLManagedTensorVersioned>() == 8);
    assert!(offset_of!(DLManagedTensorVersioned, version) == 0);
    assert!(offset_of!(DLManagedTensorVersioned, manager_ctx) == 8);
    assert!(offset_of!(DLManagedTensorVersioned, deleter) == 16);
    assert!(offset_of!(DLManagedTensorVersioned, flags) == 24);
    assert!(offset_of!(DLManagedTensorVersioned, dl_tensor) == 32);
};

/// The struct with version and flags, which can mark an array as read-only.
pub type Versioned = DLManagedTensorVersioned;

/// The struct of DLPack 0, which cannot mark an array as read-only.
pub type Legacy = DLManagedTensor;

/// `DLPackExchangeAPIHeader`: the part of the table that is the same in every version.
#[derive(Debug)]
#[repr(C)]
pub struct DLPackExchangeAPIHeader {
    /// The version of the table that follows the header.
    pub version: DLPackVersion,
    /// The table of an older version, or null.
    pub prev_api: *mut Self,
}

/// The attributes of a Python class that can have the table. The second one has its first name.
#[cfg(feature = "python")]
pub(crate) const EXCHANGE_ATTRIBUTES: [&str; 2] = ["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"];

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
