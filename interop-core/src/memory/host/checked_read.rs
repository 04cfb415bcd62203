//! Reads of elements in host memory: whether the host may read it, and whether the bytes are a value.

use core::mem::MaybeUninit;
use core::ptr;

use crate::array::device::{Device, DeviceType};
use crate::array::element::Element;
use crate::array::stream::StreamHandle;
use crate::cuda::handover::synchronize_if_available;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::host::elements::first_no_bool;

/// Reads one element.
///
/// # Safety
///
/// `element` points to `size_of::<T>()` live, initialized bytes; any alignment will do.
pub(crate) unsafe fn read<T: Element>(element: *const T) -> Result<T> {
    // Copied first and looked at afterwards: another library may write to the element meanwhile.
    let mut copy = MaybeUninit::<T>::uninit();
    // SAFETY: live, initialized bytes, as the caller promises, and a place for as many.
    unsafe { ptr::copy_nonoverlapping(element.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    // SAFETY: the bytes of one element have been written.
    unsafe { check_run(copy.as_ptr(), 1)? };
    // SAFETY: and they are a `T`, either because all are or because they were checked.
    Ok(unsafe { copy.assume_init() })
}

/// Refuses `bool` elements that are none.
///
/// # Safety
///
/// `first` points to `count` live, initialized elements.
pub(crate) unsafe fn check_run<T: Element>(first: *const T, count: usize) -> Result<()> {
    if T::TYPE.any_bits {
        return Ok(());
    }
    // SAFETY: as the caller promises, in bytes.
    unsafe { check_bools(first.cast(), count * size_of::<T>()) }
}

/// Refuses bytes that are no `bool`, the one element with invalid bit patterns.
///
/// # Safety
///
/// `bytes` points to `count` live, initialized bytes, which nobody writes meanwhile.
unsafe fn check_bools(bytes: *const u8, count: usize) -> Result<()> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { core::slice::from_raw_parts(bytes, count) };
    first_no_bool(bytes).map_or(Ok(()), |byte| Err(no_bool(byte)))
}

/// The error for a byte that is no `bool`.
#[cold]
pub(crate) fn no_bool(byte: u8) -> Error {
    let found = text!("the byte {byte} in a bool");
    let error = Error::new(ErrorKind::DType, "data", found, "0 and 1");
    error.with_rust_hint("view the array as `u8`").with_python_hint("view the array as uint8")
}

/// Refuses memory that the host cannot reach, and waits for the work that is pending on pinned and managed memory.
pub(crate) fn check_readable(device: Device, stream: StreamHandle) -> Result<()> {
    device.check_for_host()?;
    if stream == StreamHandle::NothingPending {
        return Ok(());
    }
    if device.device_type == DeviceType::CPU {
        let found = text!("work pending on the {stream}");
        let allowed = "nothing pending: no stream works on memory that is the host's alone";
        return Err(Error::new(ErrorKind::Stream, "stream", found, allowed));
    }
    synchronize_if_available(stream, device)
}
