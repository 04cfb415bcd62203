//! Compares what an array says about its memory with what the driver knows.

use crate::array::description::Description;
use crate::array::device::{Device, DeviceType};
use crate::driver::context::Context;
use crate::driver::functions::{Driver, driver, opened};
use crate::driver::pointer::{PointerAttributes, attributes_at, is_device_memory, not_cuda, reach_for};
use crate::driver::reach::Reach;
use crate::error::{Error, ErrorKind, Result, text};

/// Whether the driver is queried about the memory of an imported array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    /// What the array states about its memory is compared with the driver's answer.
    Full,
    /// What the array states about its memory is trusted.
    Skipped,
}

/// Checks the memory of an imported array, and returns the reach of its release.
///
/// # Errors
///
/// As [`compare`] and [`compare_host`].
#[inline]
pub(crate) fn check(info: &Description, trust: Verification) -> Result<Option<Reach>> {
    let sized = |reach: Reach| reach.holding(info.unwatched_range().len());
    match (info.device().device_type, trust) {
        (DeviceType::CPU, Verification::Full) => compare_host(info).map(|()| None),
        (DeviceType::CPU, Verification::Skipped) => Ok(None),
        (_, Verification::Full) => Ok(compare(info)?.map(sized)),
        (_, Verification::Skipped) if info.numel() == 0 => Ok(None),
        (DeviceType::CUDA, _) => Ok(driver().ok().map(|driver| {
            let primary = Context::primary_of(driver, info.device().device_id);
            // As in `reach_for`: after a failed query the release waits for every context in use.
            sized(primary.map_or(Reach::of_all(None), Reach::of_context))
        })),
        _ => Ok(Some(sized(Reach::of_all(None)))),
    }
}

/// Returns the reach of memory whose device is only stated, not verified. `None` without elements or a driver.
pub(crate) fn reach_in_use(info: &Description) -> Option<Reach> {
    if info.numel() == 0 || info.device() == Device::CPU {
        return None;
    }
    Some(reach_for(driver().ok()?, info.device()).holding(info.unwatched_range().len()))
}

/// Returns the reach of exported memory: the context that the driver reports for it.
#[cold]
pub(crate) fn reach_of(info: &Description) -> Option<Reach> {
    // An array without elements may still own memory, which may be freed only in its context.
    let address = if info.numel() == 0 { info.range.start } else { info.unwatched_address };
    if address == 0 {
        return None;
    }
    let driver = driver().ok()?;
    let sized = |reach: Reach| reach.holding(info.unwatched_range().len());
    let attributes = match attributes_at(driver, address) {
        Ok(attributes) => attributes?,
        // A failed query says nothing about the memory.
        Err(_) => return Some(sized(reach_for(driver, info.device()))),
    };
    // The export may outlive every handle of the context that its producer holds.
    Context::retain_primary(driver, attributes.ordinal);
    Some(sized(attributes.reach(driver)))
}

/// Compares what an array states about its memory with the driver's answer for its address. Returns the reach of its
/// release.
///
/// An array without elements has no memory. Without a driver there is nothing to query, and no device that could use
/// the address: the statement is accepted.
///
/// # Errors
///
/// [`ErrorKind::Device`] if the address is not CUDA memory, or is of another kind or device than stated.
/// [`ErrorKind::OutOfBounds`] if elements lie outside the allocation.
#[cold]
fn compare(info: &Description) -> Result<Option<Reach>> {
    if info.numel() == 0 {
        return Ok(None);
    }
    let Ok(driver) = driver() else { return Ok(None) };
    let claimed = info.device();
    let attributes = attributes_at(driver, info.unwatched_address)?
        .ok_or_else(|| not_cuda(info.unwatched_address, claimed))?;
    if !agree(claimed, &attributes) {
        let found = text!("memory of {claimed}");
        let allowed =
            text!("{}, which the driver reports for {:#x}", attributes.device, info.unwatched_address);
        return Err(Error::new(ErrorKind::Device, "device", found, allowed));
    }
    attributes.check_range(driver, &info.unwatched_range())?;
    Ok(Some(attributes.reach(driver)))
}

/// Refuses device memory that is stated to be host memory.
///
/// The driver is queried only if it is already open: an array in host memory does not load it.
#[inline]
fn compare_host(info: &Description) -> Result<()> {
    match opened() {
        Some(driver) if is_device_memory(driver, info.unwatched_address) => {
            Err(handed_out_as_host(driver, info))
        }
        _ => Ok(()),
    }
}

#[cold]
fn handed_out_as_host(driver: &Driver, info: &Description) -> Error {
    let address = info.unwatched_address;
    let place =
        attributes_at(driver, address).ok().flatten().map_or(Device::cuda(0), |attributes| attributes.device);
    let allowed = text!("{place}, which the driver reports for {address:#x}");
    Error::new(ErrorKind::Device, "device", "memory of CPU (1)", allowed)
}

/// Returns whether memory that the driver knows may be stated as `claimed`. Managed memory may be stated as memory of
/// the device that it was allocated for, because that is how it gets into libraries that do not know managed memory.
fn agree(claimed: Device, attributes: &PointerAttributes) -> bool {
    claimed == attributes.device
        || (claimed == Device::cuda(attributes.ordinal) && attributes.device == Device::CUDA_MANAGED)
}
