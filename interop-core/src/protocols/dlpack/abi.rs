//! The C structs of `dlpack.h` 1.3, their constants, and asserts that the layout is the C one. Nothing else.
//!
//! Every field that foreign code fills is a number or a pointer: an unknown value is never undefined behaviour.

use core::ffi::{CStr, c_void};
use core::mem::offset_of;

use crate::array::device::Device;
use crate::array::dtype::DType;

/// `DLPACK_MAJOR_VERSION`: structs of another major version cannot be read.
pub const MAJOR_VERSION: u32 = 1;

/// `DLPACK_MINOR_VERSION`: the version that exports state, because their contents follow it.
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

/// `DLTensor`: a view of memory that something else owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// The memory. Element \[0, …, 0\] lies `byte_offset` bytes behind it.
    pub data: *mut c_void,
    /// Where it is.
    pub device: Device,
    /// The number of axes.
    pub ndim: i32,
    /// The element type.
    pub dtype: DType,
    /// The extents, `ndim` of them; may be null without axes.
    pub shape: *mut i64,
    /// The strides in elements; null in structs of old producers, for a compact row-major array.
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
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Releases the struct and what it owns; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`: the struct of a `dltensor_versioned` capsule.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version that the struct follows.
    pub version: DLPackVersion,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Releases the struct and what it owns; may be null.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    /// `FLAG_` bits.
    pub flags: u64,
    /// The array.
    pub dl_tensor: DLTensor,
}

/// The two forms of a managed tensor, [`DLManagedTensor`] and [`DLManagedTensorVersioned`].
pub trait TensorAbi: sealed::Sealed + Sized + 'static {
    /// The name of a fresh capsule around it.
    const CAPSULE_NAME: &'static CStr;
    /// The name of a capsule that was consumed.
    const USED_CAPSULE_NAME: &'static CStr;
    /// Whether the struct has a version and flags.
    const IS_VERSIONED: bool;
    /// The offset of the tensor in the struct.
    #[doc(hidden)]
    const TENSOR_OFFSET: usize;
    /// The offset of the deleter, which is the same in every version.
    #[doc(hidden)]
    const DELETER_OFFSET: usize;

    /// The struct around an array.
    #[doc(hidden)]
    fn wrap(
        dl_tensor: DLTensor,
        flags: u64,
        manager_ctx: *mut c_void,
        deleter: unsafe extern "C" fn(*mut Self),
    ) -> Self;

    /// The version and flags of a struct: their places in it, where it has them.
    #[doc(hidden)]
    fn version(this: *const Self) -> Option<(*const DLPackVersion, *const u64)>;

    /// The place of the deleter.
    #[doc(hidden)]
    fn deleter(this: *const Self) -> *const Option<unsafe extern "C" fn(*mut Self)> {
        this.wrapping_byte_add(Self::DELETER_OFFSET).cast()
    }
}

/// The names of capsules, at the start of a page. The interpreter compares names by `strcmp`, four times an exchange, and
/// that of glibc is slower where the 128 bytes from the start of either text may cross a page: placed by chance, one build in
/// four would pay 3 % of an import for each name.
#[repr(C, align(4096))]
struct Names {
    versioned: [u8; 19],
    used_versioned: [u8; 24],
    legacy: [u8; 9],
    used_legacy: [u8; 14],
}

static NAMES: Names = Names {
    versioned: *b"dltensor_versioned\0",
    used_versioned: *b"used_dltensor_versioned\0",
    legacy: *b"dltensor\0",
    used_legacy: *b"used_dltensor\0",
};

const fn name(text: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(text) {
        Ok(name) => name,
        Err(_) => panic!("a name ends at its zero"),
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::DLManagedTensor {}
    impl Sealed for super::DLManagedTensorVersioned {}
}

impl TensorAbi for DLManagedTensor {
    const CAPSULE_NAME: &'static CStr = name(&NAMES.legacy);
    const USED_CAPSULE_NAME: &'static CStr = name(&NAMES.used_legacy);
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
    const CAPSULE_NAME: &'static CStr = name(&NAMES.versioned);
    const USED_CAPSULE_NAME: &'static CStr = name(&NAMES.used_versioned);
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

// The sizes and offsets of the C structs where pointers have 64 bits.
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

/// The form with version and flags, which says whether the array may be written.
pub type Versioned = DLManagedTensorVersioned;

/// The form from before 1.0, which cannot say that an array is read-only.
pub type Legacy = DLManagedTensor;
