//! Checked reads of host memory: whether the host can access it, and whether the bytes are valid values.

use core::mem::MaybeUninit;
use core::ptr;

use crate::array::device::{Device, DeviceType};
use crate::array::element::Element;
use crate::array::stream::PendingWork;
use crate::cuda::driver::is_available;
use crate::cuda::handover::synchronize_pending;
use crate::error::{Error, ErrorKind, Result, text};

/// Reads one element.
///
/// # Safety
///
/// `element` points to `size_of::<T>()` live, initialized bytes. The pointer may have any alignment.
pub(crate) unsafe fn read<T: Element>(element: *const T) -> Result<T> {
    // The bytes are copied before the check, because another library may write to the element meanwhile.
    let mut copy = MaybeUninit::<T>::uninit();
    // SAFETY: the source is live and initialized, as the caller promises. The destination has room for as many bytes.
    unsafe { ptr::copy_nonoverlapping(element.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    // SAFETY: the bytes of one element have been written.
    unsafe { check_run(copy.as_ptr(), 1)? };
    // SAFETY: the bytes are a valid `T`, because all bit patterns are valid or because they were checked.
    Ok(unsafe { copy.assume_init() })
}

/// Returns an error if `T` consists of `bool`s and a byte is not a valid one.
///
/// # Safety
///
/// `first` points to `count` live, initialized elements.
pub(crate) unsafe fn check_run<T: Element>(first: *const T, count: usize) -> Result<()> {
    if T::TYPE.any_bits {
        return Ok(());
    }
    // SAFETY: as the caller promises, counted in bytes.
    unsafe { check_bools(first.cast(), count * size_of::<T>()) }
}

/// Returns an error if a byte is not a valid `bool`. `bool` is the only scalar type with invalid bit patterns.
///
/// # Safety
///
/// `bytes` points to `count` live, initialized bytes, which nothing writes during the call.
unsafe fn check_bools(bytes: *const u8, count: usize) -> Result<()> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { core::slice::from_raw_parts(bytes, count) };
    first_invalid_bool(bytes).map_or(Ok(()), |byte| Err(invalid_bool(byte)))
}

/// Copies bytes and returns the bits that are set in any of them. One pass takes half the time of a copy and a check.
///
/// # Safety
///
/// `from` has `count` live, initialized bytes. `to` has capacity for as many, and nothing else uses it.
#[inline]
pub(crate) unsafe fn copy_or(from: *const u8, to: *mut u8, count: usize) -> u8 {
    let mut bits = 0;
    for at in 0..count {
        // SAFETY: as the caller promises.
        let byte = unsafe { from.wrapping_add(at).read() };
        // SAFETY: as the caller promises.
        unsafe { to.wrapping_add(at).write(byte) };
        bits |= byte;
    }
    bits
}

/// The error for a byte that is not a valid `bool`.
#[cold]
pub(crate) fn invalid_bool(byte: u8) -> Error {
    let found = text!("the byte {byte} in a bool");
    let error = Error::new(ErrorKind::DType, "data", found, "0 and 1");
    error.with_rust_hint("view the array as `u8`").with_python_hint("view the array as uint8")
}

/// Returns an error for memory that the host cannot access. Waits for work that is pending on pinned and managed memory
/// at this address.
pub(crate) fn check_readable(pending: PendingWork, address: usize, device: Device) -> Result<()> {
    device.check_for_host()?;
    if pending.is_nothing() {
        return Ok(());
    }
    match pending.name() {
        Some(stream) if device.device_type == DeviceType::CPU => {
            let found = text!("work pending on the {stream}");
            let allowed = "no stream, because CPU memory has no pending work";
            Err(Error::new(ErrorKind::Stream, "stream", found, allowed))
        }
        _ if is_available() => synchronize_pending(pending, address, device),
        _ => Ok(()),
    }
}

/// Returns the first byte that is not a valid `bool`. Blocks of 1024 bytes are tested together, so that the compiler
/// vectorizes the test.
#[inline]
pub(crate) fn first_invalid_bool(bytes: &[u8]) -> Option<u8> {
    let is_bad = |block: &&[u8]| block.iter().fold(0, |all, byte| all | byte) > 1;
    bytes.chunks(1024).find(is_bad)?.iter().copied().find(|byte| *byte > 1)
}
