//! The C structs of `tvm/ffi/c_api.h`, version 0.1, under their names there.
//!
//! Later versions 0.1 have added type indices and fields at the end only.

use core::ffi::c_void;
use core::mem::offset_of;

use interop_core::protocols::dlpack::DLTensor;

/// An argument or a result: a number, or a pointer to an object.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TVMFFIAny {
    /// The kind of `value`, one of [`index`].
    pub type_index: i32,
    /// The length of a short string, otherwise 0.
    pub small_str_len: u32,
    /// A number, a pointer, or at most 8 bytes of a short string.
    pub value: u64,
}

impl TVMFFIAny {
    /// `None`.
    pub const NONE: Self = Self { type_index: index::NONE, small_str_len: 0, value: 0 };

    /// Creates a value.
    #[must_use]
    pub const fn new(type_index: i32, value: u64) -> Self {
        Self { type_index, small_str_len: 0, value }
    }

    /// The value as a pointer.
    pub(crate) fn pointer<T>(&self) -> *const T {
        core::ptr::with_exposed_provenance(usize::try_from(self.value).unwrap_or(0))
    }

    /// The payload of the object in the value: a `DLTensor`, a [`TVMFFIByteArray`] or a [`TVMFFISeqCell`].
    pub(crate) fn payload<T>(&self) -> *const T {
        self.pointer::<TVMFFIObject>().wrapping_add(1).cast()
    }
}

/// The bytes of a string.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TVMFFIByteArray {
    /// The first byte.
    pub data: *const u8,
    /// The number of bytes.
    pub size: usize,
}

/// The items of a list.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TVMFFISeqCell {
    /// The first item.
    pub data: *const TVMFFIAny,
    /// The number of items.
    pub size: i64,
}

/// The header of each object.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TVMFFIObject {
    /// The numbers of strong and weak references.
    pub combined_ref_count: u64,
    /// The kind of the object, one of [`index`].
    pub type_index: i32,
    /// Nothing.
    pub padding: u32,
    /// The function that deletes the object.
    pub deleter: *const c_void,
}

/// The numbers of `TVMFFITypeIndex`.
pub mod index {
    /// No value.
    pub const NONE: i32 = 0;
    /// An `int64_t`.
    pub const INT: i32 = 1;
    /// A bool.
    pub const BOOL: i32 = 2;
    /// A `double`.
    pub const FLOAT: i32 = 3;
    /// A `DLDataType`.
    pub const DATA_TYPE: i32 = 5;
    /// A `DLDevice`.
    pub const DEVICE: i32 = 6;
    /// A `DLTensor*`.
    pub const DL_TENSOR_PTR: i32 = 7;
    /// A `const char*`.
    pub const RAW_STR: i32 = 8;
    /// A pointer to a reference that the function may take.
    pub const OBJECT_RVALUE_REF: i32 = 10;
    /// At most seven bytes of a string.
    pub const SMALL_STR: i32 = 11;
    /// The first kind of objects, which the library makes.
    pub const FIRST_OBJECT: i32 = 64;
    /// A string.
    pub const STR: i32 = 65;
    /// A tensor.
    pub const TENSOR: i32 = 70;
    /// A list or a tuple.
    pub const ARRAY: i32 = 71;
    /// A `tvm_ffi.List`, which its owner may change.
    pub const LIST: i32 = 75;

    /// What Python calls a kind of values, for errors.
    pub(crate) fn name(index: i32) -> &'static str {
        match index {
            NONE => "None",
            INT => "an int",
            BOOL => "a bool",
            FLOAT => "a float",
            DATA_TYPE => "a dtype",
            DEVICE => "a device",
            DL_TENSOR_PTR | TENSOR => "a tensor",
            RAW_STR | SMALL_STR | STR => "a str",
            ARRAY | LIST => "a list",
            // Kinds that no parameter takes: `kTVMFFIByteArrayPtr` to `kTVMFFIBigInt`.
            9 | 12 | 66 => "bytes",
            68 => "a function",
            69 => "a shape",
            72 | 76 => "a dict",
            74 => "an object that exports no DLPack tensor",
            78 => "an int of more than 64 bits",
            _ => "an object of an unknown class",
        }
    }
}

/// `TVMFFISafeCallType`: the type of an exported function.
pub type SafeCall = unsafe extern "C" fn(*mut c_void, *const TVMFFIAny, i32, *mut TVMFFIAny) -> i32;

const _: () = {
    assert!(size_of::<TVMFFIAny>() == 16 && offset_of!(TVMFFIAny, small_str_len) == 4);
    assert!(offset_of!(TVMFFIAny, value) == 8 && offset_of!(TVMFFIObject, type_index) == 8);
};

// The header has 24 bytes with pointers of 32 bits, too.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<TVMFFIObject>() == 24 && offset_of!(TVMFFIObject, deleter) == 16);
    assert!(size_of::<TVMFFIByteArray>() == 16 && offset_of!(TVMFFISeqCell, size) == 8);
    assert!(size_of::<DLTensor>() == 48);
};
