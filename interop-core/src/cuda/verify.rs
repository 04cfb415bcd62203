//! Compares what an array states about its memory with the driver's answer, and determines what a release waits for.

use core::ops::Range;

use crate::array::device::{Device, DeviceType};
use crate::array::info::ArrayInfo;
use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, code, driver, opened};
use crate::cuda::pointer::{PointerAttributes, ask, is_of_a_device, not_cuda, piece_at};
use crate::cuda::release::scope::ReleaseScope;
use crate::error::{Error, ErrorKind, Result, text};

/// Whether the driver is queried about the memory of an imported array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    /// What the array states about its memory is compared with the driver's answer.
    Full,
    /// What the array states about its memory is trusted.
    Skipped,
}

/// Checks the memory of an imported array, and returns the scope of its release.
///
/// # Errors
///
/// As [`compare`] and [`compare_host`].
#[inline]
pub(crate) fn check(info: &ArrayInfo, trust: Verification) -> Result<Option<ReleaseScope>> {
    let sized = |scope: ReleaseScope| scope.holding(info.span().len());
    match (info.device().device_type, trust) {
        (DeviceType::CPU, Verification::Full) => compare_host(info).map(|()| None),
        (DeviceType::CPU, Verification::Skipped) => Ok(None),
        (_, Verification::Full) => Ok(compare(info)?.map(sized)),
        (_, Verification::Skipped) if info.numel() == 0 => Ok(None),
        (DeviceType::CUDA, _) => Ok(driver().ok().map(|driver| {
            let primary = Context::primary_of(driver, info.device().device_id);
            // As in `release_scope_for`: after a failed query the release waits for every context in use.
            sized(primary.map_or(ReleaseScope::of_all(None), ReleaseScope::of_context))
        })),
        _ => Ok(Some(sized(ReleaseScope::of_all(None)))),
    }
}

/// Returns the release scope of memory whose device is only stated, not verified. `None` without elements or a driver.
pub(crate) fn release_scope_in_use(info: &ArrayInfo) -> Option<ReleaseScope> {
    if info.numel() == 0 || info.device() == Device::CPU {
        return None;
    }
    Some(release_scope_for(driver().ok()?, info.device()).holding(info.span().len()))
}

/// Returns the release scope of memory whose context is unknown, or that has none of its own, such as pool memory. It
/// may be in use in the current context, which need not be a primary one: some libraries make their own.
///
/// If a query fails, the scope is every context in use.
pub(crate) fn release_scope_for(driver: &Driver, device: Device) -> ReleaseScope {
    let primary = match device.device_type {
        DeviceType::CUDA => Context::primary_of(driver, device.device_id).ok(),
        _ => None,
    };
    let current = Context::current(driver).ok().flatten().filter(|current| Some(*current) != primary);
    let elsewhere = || Context::current_ordinal(driver).is_ok_and(|ordinal| ordinal != device.device_id);
    let own = current.filter(|_| primary.is_none() || !elsewhere());
    match (own, primary) {
        (None, Some(primary)) => ReleaseScope::of_context(primary),
        _ => ReleaseScope::of_all(own),
    }
}

/// Returns the release scope of exported memory: the context that the driver reports for it.
#[cold]
pub(crate) fn release_scope_of(info: &ArrayInfo) -> Option<ReleaseScope> {
    // An array without elements may still own memory, which may be freed only in its context.
    let address = if info.numel() == 0 { info.range.start } else { info.address };
    if address == 0 {
        return None;
    }
    let driver = driver().ok()?;
    let sized = |scope: ReleaseScope| scope.holding(info.span().len());
    let attributes = match ask(driver, address) {
        Ok(attributes) => attributes?,
        // A failed query says nothing about the memory.
        Err(_) => return Some(sized(release_scope_for(driver, info.device()))),
    };
    // The export may outlive every handle of the context that its producer holds.
    Context::retain_primary(driver, attributes.ordinal());
    Some(sized(attributes.scope(driver)))
}

/// Returns the context of memory, if it has one, and the scope in which the memory may be in use. `None` for an array
/// without elements, whose address is 0, for host memory and memory that the driver does not know, and without a driver.
///
/// # Errors
///
/// [`ErrorKind::Driver`] if the query fails.
pub(crate) fn memory_use(address: usize, device: Device) -> Result<Option<(Option<Context>, ReleaseScope)>> {
    let Ok(driver) = driver() else { return Ok(None) };
    if address == 0 || device.device_type == DeviceType::CPU {
        return Ok(None);
    }
    let attributes = ask(driver, address)?;
    Ok(attributes.map(|attributes| (attributes.context(), attributes.scope(driver))))
}

/// Compares what an array states about its memory with the driver's answer for its address. Returns the scope of its
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
fn compare(info: &ArrayInfo) -> Result<Option<ReleaseScope>> {
    if info.numel() == 0 {
        return Ok(None);
    }
    let Ok(driver) = driver() else { return Ok(None) };
    let claimed = info.device();
    let attributes = ask(driver, info.address)?.ok_or_else(|| not_cuda(info.address, claimed))?;
    if !agree(claimed, &attributes) {
        let found = text!("memory of {claimed}");
        let allowed = text!("{}, which the driver reports for {:#x}", attributes.device(), info.address);
        return Err(Error::new(ErrorKind::Device, "device", found, allowed));
    }
    attributes.check_range(driver, &info.span())?;
    Ok(Some(attributes.scope(driver)))
}

/// Returns the attributes of the memory of an array that states no device, or `None` for an array without elements.
///
/// # Errors
///
/// [`ErrorKind::Device`] if the address is not CUDA memory, [`ErrorKind::OutOfBounds`] if elements lie outside the
/// allocation, [`ErrorKind::Driver`] without a driver.
pub(crate) fn pointer_attributes_of(info: &ArrayInfo) -> Result<Option<PointerAttributes>> {
    if info.numel() == 0 {
        return Ok(None);
    }
    let driver = driver()?;
    let attributes = ask(driver, info.address)?;
    let attributes = attributes.ok_or_else(|| not_cuda(info.address, "memory that CUDA can reach"))?;
    attributes.check_range(driver, &info.span())?;
    Ok(Some(attributes))
}

/// Refuses device memory that is stated to be host memory.
///
/// The driver is queried only if it is already open: an array in host memory does not load it.
#[inline]
fn compare_host(info: &ArrayInfo) -> Result<()> {
    match opened() {
        Some(driver) if is_of_a_device(driver, info.address) => Err(handed_out_as_host(driver, info)),
        _ => Ok(()),
    }
}

#[cold]
fn handed_out_as_host(driver: &Driver, info: &ArrayInfo) -> Error {
    let address = info.address;
    let place = ask(driver, address).ok().flatten().map_or(Device::cuda(0), |attributes| attributes.device());
    let allowed = text!("{place}, which the driver reports for {address:#x}");
    Error::new(ErrorKind::Device, "device", "memory of CPU (1)", allowed)
}

/// Returns whether memory that the driver knows may be stated as `claimed`. Managed memory may be stated as memory of
/// the device that it was allocated for, because that is how it gets into libraries that do not know managed memory.
fn agree(claimed: Device, attributes: &PointerAttributes) -> bool {
    claimed == attributes.device()
        || (claimed == Device::cuda(attributes.ordinal()) && attributes.device() == Device::CUDA_MANAGED)
}

impl PointerAttributes {
    pub(crate) fn scope(&self, driver: &Driver) -> ReleaseScope {
        match (self.device().device_type, self.context()) {
            (DeviceType::CUDA, Some(context)) => ReleaseScope::of_context(context),
            (DeviceType::CUDA, None) => release_scope_for(driver, self.device()),
            (_, context) => ReleaseScope::of_all(context),
        }
    }

    fn check_range(&self, driver: &Driver, claimed: &Range<usize>) -> Result<()> {
        let Range { start, end } = self.range();
        if claimed.start < start || end < claimed.end {
            let size = end - start;
            let allowed =
                text!("{start:#x} to {end:#x}, the allocation of {size} bytes that the driver knows there");
            return Err(beyond(claimed, allowed));
        }
        // Only memory without a context can consist of several mappings.
        let whole = self.context().is_some() || self.has_in_one_piece(claimed);
        if whole { Ok(()) } else { self.check_pieces(driver, claimed) }
    }

    /// Checks that memory of one kind is mapped under all elements. A program that maps memory itself (`cuMemMap`) can
    /// leave holes, and put memory of several devices side by side. Makes one query for each mapping.
    #[cold]
    fn check_pieces(&self, driver: &Driver, claimed: &Range<usize>) -> Result<()> {
        let (start, own) = (claimed.start, self.device());
        let mut at = start;
        while at < claimed.end {
            let piece = match piece_at(driver, at) {
                // A driver before 11.7 does not support the query.
                Err(failure) if failure.code == code::INVALID_VALUE => return Ok(()),
                answer => answer?,
            };
            at = match piece {
                Some((device, piece)) if device == own => {
                    if !piece.contains(&at) {
                        // Mapped by the driver, which does not report the range.
                        return Ok(());
                    }
                    piece.end
                }
                Some((device, _)) => {
                    let allowed =
                        text!("{start:#x} to {at:#x}, where memory of {device} follows that of {own}");
                    return Err(beyond(claimed, allowed));
                }
                None => {
                    let allowed = text!("{start:#x} to {at:#x}, the end of the mapped memory");
                    return Err(beyond(claimed, allowed));
                }
            };
        }
        Ok(())
    }
}

#[cold]
fn beyond(claimed: &Range<usize>, allowed: impl core::fmt::Display) -> Error {
    let found = text!("elements at {:#x} to {:#x}", claimed.start, claimed.end);
    Error::new(ErrorKind::OutOfBounds, "data", found, allowed)
}
