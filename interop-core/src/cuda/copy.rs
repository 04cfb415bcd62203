//! Copies between host and device that are complete when they return.

use crate::array::device::Device;
use crate::array::info::ArrayInfo;
use crate::array::stream::PendingWork;
use crate::cuda::allocation::finished;
use crate::cuda::context::{Context, Relaxed};
use crate::cuda::driver::{Driver, Outcome, driver};
use crate::cuda::handover::synchronize;
use crate::error::{Error, Result};

/// Copies bytes between any two addresses that the driver knows, and waits for the copy.
///
/// # Safety
///
/// Both ranges have this many bytes. Nobody writes to the source or uses the target meanwhile.
pub(crate) unsafe fn copy_now(
    driver: &Driver,
    context: Context,
    to: usize,
    from: usize,
    bytes: usize,
) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    let _entered = context.enter(driver)?;
    let _relaxed = Relaxed::new(driver);
    // SAFETY: as the caller promises; the stream is live.
    finished(driver, |stream| unsafe { driver.copy(to as u64, from as u64, bytes, stream) })
}

/// A copy in host memory of all bytes that the elements of an array span, made after the work that is pending on it.
pub(crate) struct Staged {
    /// Aligned for any element; kept while `info` is in use.
    _bytes: Vec<u128>,
    pub(crate) info: ArrayInfo,
}

/// Copies the bytes of an array to the host. The copy has the same layout at another address.
///
/// # Errors
///
/// As [`stream_synchronize`], and [`ErrorKind::OutOfMemory`](crate::error::ErrorKind::OutOfMemory) if the host does not
/// have the memory.
///
/// # Safety
///
/// The memory that `info` describes is live.
pub(crate) unsafe fn stage(info: &ArrayInfo) -> Result<Staged> {
    let (driver, range) = (driver()?, info.span());
    synchronize(info)?;
    let words = range.len().div_ceil(size_of::<u128>());
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(words).map_err(|_| Error::no_memory(range.len()))?;
    bytes.resize(words, 0_u128);
    let start = bytes.as_mut_ptr().expose_provenance();
    let context = crate::cuda::default_context::context_for(driver, info.device())?;
    // SAFETY: the range is the array's own, live as the caller promises; the vector is new and as long.
    unsafe { copy_now(driver, context, start, range.start, range.len()) }?;
    Ok(Staged { _bytes: bytes, info: moved(info, start, Device::CPU) })
}

/// Returns the description of the same bytes at another address, where nothing is pending on them.
pub(crate) fn moved(info: &ArrayInfo, start: usize, device: Device) -> ArrayInfo {
    let range = info.span();
    ArrayInfo {
        address: if info.numel() == 0 { 0 } else { start + (info.address - range.start) },
        range: start..start + range.len(),
        device,
        pending: PendingWork::NOTHING,
        ..info.clone()
    }
}
