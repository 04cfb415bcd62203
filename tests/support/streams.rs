//! Streams made of numbers.
#![expect(unsafe_code, reason = "a number is said to be a stream")]

use interop_core::{DeviceType, Result, StreamHandle};

/// The stream of this number. The test keeps it, or hands it to nobody who would follow it.
pub(crate) fn stream(handle: usize) -> StreamHandle {
    // SAFETY: no driver gets a number that is no stream.
    unsafe { StreamHandle::from_raw(handle) }
}

/// As [`stream`], of the key `stream` of an interface dict.
pub(crate) fn from_cai(number: Option<i128>) -> Result<StreamHandle> {
    // SAFETY: as above.
    unsafe { StreamHandle::from_cai(number) }
}

/// As [`stream`], of the argument `stream` of `__dlpack__`.
pub(crate) fn from_dlpack(device: DeviceType, number: Option<i128>) -> Result<StreamHandle> {
    // SAFETY: as above.
    unsafe { StreamHandle::from_dlpack(device, number) }
}
