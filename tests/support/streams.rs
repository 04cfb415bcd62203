//! Streams made from numbers.
#![expect(unsafe_code, reason = "a number is said to be a stream")]

use interop_core::{DeviceType, Result, StreamHandle};

/// The stream with this handle. The test keeps it alive, or never dereferences it.
pub(crate) fn stream(handle: usize) -> StreamHandle {
    // SAFETY: no invalid handle is passed to a driver.
    unsafe { StreamHandle::from_raw(handle) }
}

/// Like [`stream`], from the key `stream` of an interface dict.
pub(crate) fn from_cai(number: Option<i128>) -> Result<StreamHandle> {
    // SAFETY: as above.
    unsafe { StreamHandle::from_cai(number) }
}

/// Like [`stream`], from the argument `stream` of `__dlpack__`.
pub(crate) fn from_dlpack(device: DeviceType, number: Option<i128>) -> Result<StreamHandle> {
    // SAFETY: as above.
    unsafe { StreamHandle::from_dlpack(device, number) }
}
