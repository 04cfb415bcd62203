//! The comparison of what an array says of its memory with what the driver knows, and what a release has to come after.

use core::ops::Range;

use super::context::Context;
use super::driver::{Driver, code, driver, opened};
use super::pointer::{PointerFacts, ask, is_of_a_device, not_cuda, piece_at};
use super::release::Fence;
use crate::device::{Device, DeviceType};
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;

/// Whether the driver is asked about the memory of an array that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// What the array says of its memory is compared with what the driver knows.
    Nothing,
    /// What the array says of its memory is believed.
    Memory,
}

/// Checks the memory of an array that arrives, and says what its release has to come after.
///
/// # Errors
///
/// As [`compare`] and [`compare_host`].
#[inline]
pub(crate) fn check(facts: &Facts, trust: Trust) -> Result<Option<Fence>> {
    match (facts.device().device_type, trust) {
        (DeviceType::CPU, Trust::Nothing) => compare_host(facts).map(|()| None),
        (DeviceType::CPU, Trust::Memory) => Ok(None),
        (_, Trust::Nothing) => compare(facts),
        (_, Trust::Memory) if facts.numel() == 0 => Ok(None),
        (DeviceType::CUDA, _) => Ok(driver().ok().map(|driver| {
            let primary = Context::primary_of(driver, facts.device().device_id);
            // As for `fence_for`: a question that fails is no reason to wait for nothing.
            primary.map_or(Fence::of_all(None), Fence::of_device)
        })),
        _ => Ok(Some(Fence::of_all(None))),
    }
}

/// What the release of memory comes after whose device is only claimed. `None` without elements or a driver.
pub(crate) fn fence_in_use(facts: &Facts) -> Option<Fence> {
    if facts.numel() == 0 || facts.device() == Device::CPU {
        return None;
    }
    Some(fence_for(driver().ok()?, facts.device()))
}

/// What the release of memory comes after whose context is not known, or which has none of its own, as from a pool. It may
/// be in use in the current context, which need not be a primary one: some libraries make their own.
///
/// A question that fails is no reason to wait for nothing: then it is every context in use.
pub(super) fn fence_for(driver: &Driver, device: Device) -> Fence {
    let primary = match device.device_type {
        DeviceType::CUDA => Context::primary_of(driver, device.device_id).ok(),
        _ => None,
    };
    let current = Context::current(driver).ok().flatten().filter(|current| Some(*current) != primary);
    let elsewhere = || Context::current_ordinal(driver).is_ok_and(|ordinal| ordinal != device.device_id);
    let own = current.filter(|_| primary.is_none() || !elsewhere());
    match (own, primary) {
        (None, Some(primary)) => Fence::of_device(primary),
        _ => Fence::of_all(own),
    }
}

/// What the release of exported memory comes after: the context that the driver knows it in.
#[cold]
pub(crate) fn fence_of(facts: &Facts) -> Option<Fence> {
    // Without elements there is the memory behind them, and it may be freed in its context alone.
    let address = if facts.numel() == 0 { facts.range.start } else { facts.address() };
    if address == 0 {
        return None;
    }
    let driver = driver().ok()?;
    let known = match ask(driver, address) {
        Ok(known) => known?,
        // A question that failed says nothing of the memory.
        Err(_) => return Some(fence_for(driver, facts.device())),
    };
    // The export outlives whatever handle of the context its maker has.
    Context::keep_primary(driver, known.ordinal());
    Some(known.fence(driver))
}

/// Compares what an array says of its memory with what the driver knows of the address, and says what its release has to
/// come after.
///
/// An array without elements has no memory. Where there is no driver there is nobody to ask, and no device that could
/// follow the address either: the claim stands.
///
/// # Errors
///
/// [`ErrorKind::Device`] when the address is not CUDA's, or of another kind or device than claimed; [`ErrorKind::Bounds`]
/// when elements lie outside the allocation.
#[cold]
fn compare(facts: &Facts) -> Result<Option<Fence>> {
    super::poll_releases();
    if facts.numel() == 0 {
        return Ok(None);
    }
    let Ok(driver) = driver() else { return Ok(None) };
    let claimed = facts.device();
    let known = ask(driver, facts.address())?.ok_or_else(|| not_cuda(facts.address(), claimed))?;
    if !agree(claimed, &known) {
        let found = text!("memory of {claimed}");
        let allowed = text!("{}, where the driver says that {:#x} is", known.device(), facts.address());
        return Err(Error::new(ErrorKind::Device, "device", found, allowed));
    }
    known.check_range(driver, &facts.byte_range())?;
    Ok(Some(known.fence(driver)))
}

/// The memory of an array that named no device; `None` for an array without elements.
///
/// # Errors
///
/// [`ErrorKind::Device`] when the address is not CUDA's, [`ErrorKind::Bounds`] when elements lie outside the allocation,
/// [`ErrorKind::Driver`] without a driver.
pub(super) fn located(facts: &Facts) -> Result<Option<PointerFacts>> {
    if facts.numel() == 0 {
        return Ok(None);
    }
    let driver = driver()?;
    let known = ask(driver, facts.address())?;
    let known = known.ok_or_else(|| not_cuda(facts.address(), "memory that CUDA can reach"))?;
    known.check_range(driver, &facts.byte_range())?;
    Ok(Some(known))
}

/// Refuses memory of a device that was handed out as host memory.
///
/// Only asked where the driver is in use: an array of host memory does not load it.
#[inline]
fn compare_host(facts: &Facts) -> Result<()> {
    match opened() {
        Some(driver) if is_of_a_device(driver, facts.address()) => Err(handed_out_as_host(driver, facts)),
        _ => Ok(()),
    }
}

/// As [`compare_host`], before there are facts, which would have to be in memory to be looked at.
#[inline(never)]
pub(crate) fn is_host_memory(address: usize) -> bool {
    !opened().is_some_and(|driver| is_of_a_device(driver, address))
}

#[cold]
fn handed_out_as_host(driver: &Driver, facts: &Facts) -> Error {
    let address = facts.address();
    let place = ask(driver, address).ok().flatten().map_or(Device::cuda(0), |known| known.device());
    let allowed = text!("{place}, where the driver says that {address:#x} is");
    Error::new(ErrorKind::Device, "device", "memory of CPU (1)", allowed)
}

/// Whether memory that the driver knows may be called `claimed`. Managed memory may be called memory of the device that
/// it was allocated for, which is how it gets into libraries that do not know managed memory.
fn agree(claimed: Device, known: &PointerFacts) -> bool {
    claimed == known.device()
        || (claimed == Device::cuda(known.ordinal()) && known.device() == Device::CUDA_MANAGED)
}

impl PointerFacts {
    pub(super) fn fence(&self, driver: &Driver) -> Fence {
        match (self.device().device_type, self.context()) {
            (DeviceType::CUDA, Some(context)) => Fence::of_device(context),
            (DeviceType::CUDA, None) => fence_for(driver, self.device()),
            (_, context) => Fence::of_all(context),
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
        // Only memory without a context can be in pieces.
        let whole = self.context().is_some() || self.has_in_one_piece(claimed);
        if whole { Ok(()) } else { self.check_pieces(driver, claimed) }
    }

    /// Whether memory is mapped under all of the elements, and of one kind: a program that maps memory itself (`cuMemMap`)
    /// can leave holes, and put memory of several devices side by side. One question for each piece.
    #[cold]
    fn check_pieces(&self, driver: &Driver, claimed: &Range<usize>) -> Result<()> {
        let (start, own) = (claimed.start, self.device());
        let mut at = start;
        while at < claimed.end {
            let piece = match piece_at(driver, at) {
                // A driver before 11.7 does not know the question.
                Err(failure) if failure.code == code::INVALID_VALUE => return Ok(()),
                answer => answer?,
            };
            at = match piece {
                Some((device, piece)) if device == own => {
                    if !piece.contains(&at) {
                        // Mapped by the driver, which does not say where.
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
                    let allowed = text!("{start:#x} to {at:#x}, behind which no memory is mapped");
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
    Error::new(ErrorKind::Bounds, "data", found, allowed)
}
