//! The C structs and constants of `dlpack.h` 1.3, with assertions on their layout.
//!
//! Every field that foreign code fills is a number or a pointer, so that an unknown value is not undefined behaviour.

use core::ffi::{CStr, c_void};
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

/// The struct from before DLPack 1.0, which cannot mark an array as read-only.
pub type Legacy = DLManagedTensor;
