//! The C struct, flags and slots of the buffer protocol.
//!
//! `Py_buffer` is part of the stable ABI since 3.11, and `PyO3` declares it only there. In 3.10 the struct is the same.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;

use pyo3::ffi::{Py_ssize_t, PyObject};

/// `Py_buffer`, which this crate fills.
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) buf: *mut c_void,
    /// A reference that the consumer drops.
    pub(crate) obj: *mut PyObject,
    pub(crate) len: Py_ssize_t,
    pub(crate) itemsize: Py_ssize_t,
    pub(crate) readonly: c_int,
    pub(crate) ndim: c_int,
    pub(crate) format: *mut c_char,
    pub(crate) shape: *mut Py_ssize_t,
    pub(crate) strides: *mut Py_ssize_t,
    pub(crate) suboffsets: *mut Py_ssize_t,
    /// Owned by this crate until the release.
    pub(crate) internal: *mut c_void,
}

impl Buffer {
    /// The value that means no buffer.
    pub(crate) const EMPTY: Self = Self {
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
pub(crate) type GetBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer, c_int) -> c_int;

/// `releasebufferproc`.
pub(crate) type ReleaseBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer);

/// `PyBufferProcs`.
#[repr(C)]
pub(crate) struct BufferProcs {
    pub(crate) get: Option<GetBuffer>,
    pub(crate) release: Option<ReleaseBuffer>,
}

/// `Py_bf_getbuffer`, a slot number.
pub(crate) const GET_SLOT: c_int = 1;

/// `Py_bf_releasebuffer`, a slot number.
pub(crate) const RELEASE_SLOT: c_int = 2;

/// The flags of a request: `PyBUF_WRITABLE`, `PyBUF_FORMAT` and so on. Each includes the flags that it implies.
#[derive(Clone, Copy)]
pub(crate) struct Flags(pub(crate) c_int);

impl Flags {
    pub(crate) const WRITABLE: Self = Self(0x1);
    pub(crate) const FORMAT: Self = Self(0x4);
    pub(crate) const ND: Self = Self(0x8);
    pub(crate) const STRIDES: Self = Self(0x10 | 0x8);
    pub(crate) const C_CONTIGUOUS: Self = Self(0x20 | 0x18);
    pub(crate) const F_CONTIGUOUS: Self = Self(0x40 | 0x18);
    pub(crate) const ANY_CONTIGUOUS: Self = Self(0x80 | 0x18);

    pub(crate) fn ask(self, what: Self) -> bool {
        self.0 & what.0 == what.0
    }
}
