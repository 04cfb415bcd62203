//! The buffer protocol's C struct and flags, and where a class has its two functions.
//!
//! `Py_buffer` is in the stable ABI since 3.11, and `PyO3` declares it for that only; it is the same struct in 3.10.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;

use pyo3::ffi::{Py_ssize_t, PyObject};

/// `Py_buffer`, to be filled by us.
#[repr(C)]
pub(super) struct Buffer {
    pub(super) buf: *mut c_void,
    /// A reference that the consumer gives back.
    pub(super) obj: *mut PyObject,
    pub(super) len: Py_ssize_t,
    pub(super) itemsize: Py_ssize_t,
    pub(super) readonly: c_int,
    pub(super) ndim: c_int,
    pub(super) format: *mut c_char,
    pub(super) shape: *mut Py_ssize_t,
    pub(super) strides: *mut Py_ssize_t,
    pub(super) suboffsets: *mut Py_ssize_t,
    /// Ours until the release.
    pub(super) internal: *mut c_void,
}

impl Buffer {
    /// No buffer.
    pub(super) const NOTHING: Self = Self {
        buf: null_mut(),
        obj: null_mut(),
        len: 0,
        itemsize: 0,
        readonly: 0,
        ndim: 0,
        format: null_mut(),
        shape: null_mut(),
        strides: null_mut(),
        suboffsets: null_mut(),
        internal: null_mut(),
    };
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Buffer>() == 80);
    assert!(offset_of!(Buffer, readonly) == 32);
    assert!(offset_of!(Buffer, format) == 40);
    assert!(offset_of!(Buffer, internal) == 72);
};

#[cfg(target_pointer_width = "32")]
const _: () = {
    assert!(size_of::<Buffer>() == 44);
    assert!(offset_of!(Buffer, format) == 24);
    assert!(offset_of!(Buffer, internal) == 40);
};

/// `getbufferproc`.
pub(super) type GetBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer, c_int) -> c_int;
/// `releasebufferproc`.
pub(super) type ReleaseBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer);

/// `PyBufferProcs`.
#[repr(C)]
pub(super) struct BufferProcs {
    pub(super) get: Option<GetBuffer>,
    pub(super) release: Option<ReleaseBuffer>,
}

/// `Py_bf_getbuffer`, the number of a slot.
pub(super) const GET_SLOT: c_int = 1;
/// `Py_bf_releasebuffer`.
pub(super) const RELEASE_SLOT: c_int = 2;

/// What a consumer asks for: `PyBUF_WRITABLE`, `PyBUF_FORMAT` and so on, each with what it includes.
#[derive(Clone, Copy)]
pub(super) struct Flags(pub(super) c_int);

impl Flags {
    pub(super) const WRITABLE: Self = Self(0x1);
    pub(super) const FORMAT: Self = Self(0x4);
    pub(super) const ND: Self = Self(0x8);
    pub(super) const STRIDES: Self = Self(0x10 | 0x8);
    pub(super) const C_CONTIGUOUS: Self = Self(0x20 | 0x18);
    pub(super) const F_CONTIGUOUS: Self = Self(0x40 | 0x18);
    pub(super) const ANY_CONTIGUOUS: Self = Self(0x80 | 0x18);

    pub(super) fn ask(self, what: Self) -> bool {
        self.0 & what.0 == what.0
    }
}
