//! What the driver knows of an address, and the comparison of that with what an array says of itself.

use core::ffi::c_void;
use core::ops::Range;

use super::context::Context;
use super::driver::{Driver, Outcome, code, driver, opened};
use super::release::Fence;
use crate::device::{Device, DeviceType};
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;

/// `CU_POINTER_ATTRIBUTE_...`
const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;

/// `CU_MEMORYTYPE_...`
const HOST: usize = 1;
const DEVICE: usize = 2;

/// What the driver knows of an address (`cuPointerGetAttributes`, one call).
///
/// ```no_run
/// use interop_core::{cuda, Device};
///
/// # let address = 0x7f00_0000_0000;
/// match cuda::pointer_facts(address)? {
///     Some(known) if known.device() == Device::cuda(0) => println!("{} bytes of GPU 0", known.range().len()),
///     Some(known) => println!("{}", known.device()),
///     None => println!("not memory of CUDA: a plain host address, or one that was freed"),
/// }
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerFacts {
    device: Device,
    ordinal: i32,
    context: Option<Context>,
    range: Range<usize>,
}

impl PointerFacts {
    /// The kind of memory, as an export names it: CUDA with its ordinal, pinned (also registered) or managed.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The ordinal of the device that the memory was allocated for. Of managed and pinned memory it says nothing about
    /// where the bytes are.
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// The context that the memory was allocated in; `None` for memory from a pool, which belongs to a device.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        self.context
    }

    /// The addresses of the allocation. For memory from a caching allocator that is the allocator's block.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// Asks the driver what memory an address is in; `None` for an address that is not CUDA's.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver.
pub fn pointer_facts(address: usize) -> Result<Option<PointerFacts>> {
    Ok(ask(driver()?, address)?)
}

/// The driver's answers about an address, a word for each, of which some take the lower half: all machines with CUDA are
/// little-endian. They stay zero for an address that the driver does not know.
fn answers<const N: usize>(driver: &Driver, address: usize, mut attributes: [i32; N]) -> Outcome<[usize; N]> {
    let mut answers = [0_usize; N];
    let first = (&raw mut answers).cast::<usize>();
    let mut places: [*mut c_void; N] = core::array::from_fn(|at| first.wrapping_add(at).cast());
    #[expect(clippy::cast_possible_truncation, reason = "a handful")]
    let count = N as u32;
    // SAFETY: as many attributes as places, none of them larger than a word (`cuda.h`). Any address may be asked for:
    // nothing is read from it.
    unsafe {
        driver.pointer_attributes(count, attributes.as_mut_ptr(), places.as_mut_ptr(), address as u64)
    }?;
    Ok(answers)
}

fn ask(driver: &Driver, address: usize) -> Outcome<Option<PointerFacts>> {
    let asked = [MEMORY_TYPE, DEVICE_ORDINAL, IS_MANAGED, CONTEXT, RANGE_START, RANGE_SIZE];
    let [memory_type, ordinal, managed, context, start, size] = answers(driver, address, asked)?;
    #[expect(clippy::cast_possible_truncation, reason = "the driver wrote an `int`")]
    let ordinal = ordinal as i32;
    let device = match (memory_type, managed) {
        (_, 1..) => Device::CUDA_MANAGED,
        (HOST, _) => Device::CUDA_HOST,
        (DEVICE, _) => Device::cuda(ordinal),
        _ => return Ok(None),
    };
    let context = Context::answered(context);
    Ok(Some(PointerFacts { device, ordinal, context, range: start..start.saturating_add(size) }))
}

/// The address under which devices reach memory: another than the host's for some registered memory, the same for all
/// other.
///
/// # Errors
///
/// As [`pointer_facts`]; [`ErrorKind::Device`] for memory that no device can reach.
pub fn device_address(address: usize) -> Result<usize> {
    let driver = driver()?;
    match one(driver, address, DEVICE_POINTER)? {
        Some(found) => Ok(found),
        // The context that is current may be of another device, which cannot reach it.
        None if ask(driver, address)?.is_some() => Ok(address),
        None => Err(not_cuda(address, "memory that a device can reach")),
    }
}

/// The address under which the host has pinned memory, of which a producer may name either.
///
/// # Errors
///
/// As [`pointer_facts`].
pub(super) fn host_address(address: usize) -> Result<usize> {
    Ok(one(driver()?, address, HOST_POINTER)?.unwrap_or(address))
}

/// One attribute of the size of a pointer; `None` for an address that is not CUDA's.
///
/// Unlike the question for several attributes it needs a context that is current.
fn one(driver: &Driver, address: usize, attribute: i32) -> Outcome<Option<usize>> {
    let _entered = match Context::current(driver)? {
        Some(_) => None,
        None => match ask(driver, address)? {
            Some(known) => Some(known.home(driver)?.enter(driver)?),
            None => return Ok(None),
        },
    };
    let mut value = 0_usize;
    // SAFETY: a place for a pointer, which these attributes are.
    match unsafe { driver.pointer_attribute((&raw mut value).cast(), attribute, address as u64) } {
        Ok(()) => Ok(Some(value)),
        Err(failure) if failure.code == code::INVALID_VALUE => Ok(None),
        Err(failure) => Err(failure),
    }
}

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
    if facts.numel() == 0 {
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
    Context::keep_primary(driver, known.ordinal);
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
        let allowed = text!("{}, where the driver says that {:#x} is", known.device, facts.address());
        return Err(Error::new(ErrorKind::Device, "device", found, allowed));
    }
    known.check_range(&facts.byte_range())?;
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
    let known = ask(driver()?, facts.address())?;
    let known = known.ok_or_else(|| not_cuda(facts.address(), "memory that CUDA can reach"))?;
    known.check_range(&facts.byte_range())?;
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

/// Two questions, at half the price of all. One that failed says nothing: a process that was forked has a driver that
/// answers errors only.
fn is_of_a_device(driver: &Driver, address: usize) -> bool {
    let known = || answers(driver, address, [MEMORY_TYPE, IS_MANAGED]);
    // An array without elements is nowhere.
    address != 0 && known().is_ok_and(|known| known == [DEVICE, 0])
}

#[cold]
fn handed_out_as_host(driver: &Driver, facts: &Facts) -> Error {
    let address = facts.address();
    let place = ask(driver, address).ok().flatten().map_or(Device::cuda(0), |known| known.device);
    let allowed = text!("{place}, where the driver says that {address:#x} is");
    Error::new(ErrorKind::Device, "device", "memory of CPU (1)", allowed)
}

/// Whether memory that the driver knows may be called `claimed`. Managed memory may be called memory of the device that
/// it was allocated for, which is how it gets into libraries that do not know managed memory.
fn agree(claimed: Device, known: &PointerFacts) -> bool {
    claimed == known.device
        || (claimed == Device::cuda(known.ordinal) && known.device == Device::CUDA_MANAGED)
}

impl PointerFacts {
    pub(super) fn fence(&self, driver: &Driver) -> Fence {
        match (self.device.device_type, self.context) {
            (DeviceType::CUDA, Some(context)) => Fence::of_device(context),
            (DeviceType::CUDA, None) => fence_for(driver, self.device),
            _ => Fence::of_all(self.context),
        }
    }

    /// A context in which the memory can be asked about, and freed.
    pub(super) fn home(&self, driver: &Driver) -> Outcome<Context> {
        self.context.map_or_else(|| Context::primary_of(driver, self.ordinal), Ok)
    }

    fn check_range(&self, claimed: &Range<usize>) -> Result<()> {
        if self.range.start <= claimed.start && claimed.end <= self.range.end {
            return Ok(());
        }
        let found = text!("elements at {:#x} to {:#x}", claimed.start, claimed.end);
        let allowed = text!(
            "{:#x} to {:#x}, the allocation of {} bytes that the driver knows there",
            self.range.start,
            self.range.end,
            self.range.len()
        );
        Err(Error::new(ErrorKind::Bounds, "data", found, allowed))
    }
}

#[cold]
fn not_cuda(address: usize, claimed: impl core::fmt::Display) -> Error {
    let found = text!("{address:#x}, which the driver does not know: a plain host address, or freed memory");
    Error::new(ErrorKind::Device, "data", found, format_args!("an address of {claimed}"))
}
