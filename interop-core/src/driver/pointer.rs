//! What the driver knows about an address. It determines what a release waits for.

use core::ffi::c_void;
use core::ops::Range;

use crate::array::device::{Device, DeviceType};
use crate::driver::context::{Context, context_for};
use crate::driver::functions::{Driver, Outcome, code, driver, is_available, to_usize};
use crate::driver::reach::Reach;
use crate::error::{Error, ErrorKind, Result, text};

/// The values of `CU_POINTER_ATTRIBUTE_...`.
const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const BUFFER_ID: i32 = 7;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;
const MAPPING_SIZE: i32 = 18;
const MAPPING_BASE: i32 = 19;

/// The values of `CU_MEMORYTYPE_...`.
const HOST: usize = 1;
const DEVICE: usize = 2;

/// What the driver knows about an address (`cuPointerGetAttributes`, one call for nearly all memory).
///
/// ```no_run
/// use interop_core::{cuda, Device};
///
/// # let address = 0x7f00_0000_0000;
/// match cuda::pointer_attributes(address)? {
///     Some(known) if known.device == Device::cuda(0) => println!("{} bytes of GPU 0", known.range.len()),
///     Some(known) => println!("{}", known.device),
///     None => println!("not memory of CUDA: a plain host address, or one that was freed"),
/// }
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq)]
#[non_exhaustive]
pub struct PointerAttributes {
    /// The kind of memory as an export states it: CUDA with its ordinal, pinned (also registered) or managed.
    pub device: Device,
    /// The ordinal of the device that the memory was allocated for. For managed and pinned memory it does not say where the bytes
    /// are.
    pub ordinal: i32,
    /// The context in which the memory was allocated. `None` for memory that has none: from a pool, or mapped by the program
    /// (`cuMemMap`).
    pub context: Option<Context>,
    /// The address range of the allocation. For memory from a caching allocator this is the allocator's block. For memory that the
    /// program maps itself (`cuMemMap`, as PyTorch does with `expandable_segments`) it is the whole reservation, parts of which may
    /// have no memory.
    pub range: Range<usize>,
    /// The range of the mapping that contains the address; empty if the driver does not report it.
    piece: Range<usize>,
}

/// The mapping is not compared: it is a property of the address, not of the memory.
impl PartialEq for PointerAttributes {
    fn eq(&self, other: &Self) -> bool {
        let info = |known: &Self| (known.device, known.ordinal, known.context, known.range.clone());
        info(self) == info(other)
    }
}

/// Queries the driver about the memory at an address. Returns `None` for an address that is not CUDA memory.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver, and if it cannot answer.
pub fn pointer_attributes(address: usize) -> Result<Option<PointerAttributes>> {
    Ok(attributes_at(driver()?, address)?)
}

/// Returns the context in which the memory at an address can be freed.
#[cfg(feature = "cust")]
pub(crate) fn context_to_free(address: usize) -> Option<Context> {
    let driver = driver().ok()?;
    attributes_at(driver, address).ok()??.context_or_primary(driver).ok()
}

/// Returns the values of attributes of an address, one word for each. Some values take the lower half of the
/// word only: all machines with CUDA are little-endian. They stay 0 for an address that the driver does not know.
#[expect(clippy::missing_errors_doc, reason = "hidden: the driver's error")]
pub fn attribute_values<const N: usize>(
    driver: &Driver,
    address: usize,
    mut attributes: [i32; N],
) -> Outcome<[usize; N]> {
    let mut values = [0_usize; N];
    let first = (&raw mut values).cast::<usize>();
    let mut places: [*mut c_void; N] = core::array::from_fn(|at| first.wrapping_add(at).cast());
    #[expect(clippy::cast_possible_truncation, reason = "a handful")]
    let count = N as u32;
    // SAFETY: there are as many attributes as places, and none of them is larger than a word (`cuda.h`). Any address
    // may be queried, because nothing is read from it.
    unsafe {
        driver.pointer_attributes(count, attributes.as_mut_ptr(), places.as_mut_ptr(), address as u64)
    }?;
    Ok(values)
}

/// Queries everything about an address, in one call for nearly all memory.
pub(crate) fn attributes_at(driver: &Driver, address: usize) -> Outcome<Option<PointerAttributes>> {
    let [memory_type, ordinal, managed, context, start, size, base, bytes] =
        all_attribute_values(driver, address)?;
    let (ordinal, context) = (to_int(ordinal), Context::from_driver(context));
    let Some(device) = kind_of(memory_type, ordinal, managed) else { return Ok(None) };
    // Constructed after its range is known. Changing it later would read it back from memory, which stalls.
    let known = |range, piece| PointerAttributes { device, ordinal, context, range, piece };
    let (named, piece) = (start..start.saturating_add(size), base..base.saturating_add(bytes));
    let range =
        if named.contains(&address) { named } else { known(named, piece.clone()).block(driver, address)? };
    Ok(Some(known(range, piece)))
}

/// Returns the values of all attributes of an address. A driver before 11.7 does not know the last two, whose values are 0
/// then.
fn all_attribute_values(driver: &Driver, address: usize) -> Outcome<[usize; 8]> {
    const ASKED: [i32; 8] = [
        MEMORY_TYPE,
        DEVICE_ORDINAL,
        IS_MANAGED,
        CONTEXT,
        RANGE_START,
        RANGE_SIZE,
        MAPPING_BASE,
        MAPPING_SIZE,
    ];
    match attribute_values(driver, address, ASKED) {
        Err(failure) if failure.code == code::INVALID_VALUE => {
            let [known @ .., _, _] = ASKED;
            let mut all = [0; ASKED.len()];
            all[..known.len()].copy_from_slice(&attribute_values(driver, address, known)?);
            Ok(all)
        }
        answer => answer,
    }
}

/// Returns the lower half of a word, where the driver wrote an `int`.
#[expect(clippy::cast_possible_truncation, reason = "the driver wrote an `int`")]
fn to_int(value: usize) -> i32 {
    value as i32
}

/// Returns the kind of memory that the values describe, or `None` for an address that is not CUDA memory.
fn kind_of(memory_type: usize, ordinal: i32, managed: usize) -> Option<Device> {
    match (memory_type, managed) {
        (_, 1..) => Some(Device::CUDA_MANAGED),
        (HOST, _) => Some(Device::CUDA_HOST),
        (DEVICE, _) => Some(Device::cuda(ordinal)),
        _ => None,
    }
}

/// Returns whether an address is device memory that the host cannot reach. Two attributes cost half as much as all of
/// them. A failed query counts as no: in a forked process every driver call fails.
pub(crate) fn is_device_memory(driver: &Driver, address: usize) -> bool {
    let known = || attribute_values(driver, address, [MEMORY_TYPE, IS_MANAGED]);
    // An array without elements has address 0.
    address != 0 && known().is_ok_and(|known| known == [DEVICE, 0])
}

/// Returns the number that distinguishes an allocation from all others of the process, earlier ones at its address
/// included. 0 for an address that is not CUDA memory.
pub(crate) fn allocation_id(driver: &Driver, address: usize) -> Outcome<usize> {
    attribute_values(driver, address, [BUFFER_ID]).map(|[id]| id)
}

/// Memory that is mapped in one piece.
pub(crate) struct Mapping {
    device: Device,
    /// If the driver does not report it, it does not contain the address.
    range: Range<usize>,
}

/// Returns the mapping at an address. `None` if nothing is mapped there.
fn mapping_at(driver: &Driver, address: usize) -> Outcome<Option<Mapping>> {
    let asked = [MEMORY_TYPE, DEVICE_ORDINAL, IS_MANAGED, MAPPING_BASE, MAPPING_SIZE];
    let [memory_type, ordinal, managed, base, size] = attribute_values(driver, address, asked)?;
    let range = base..base.saturating_add(size);
    Ok(kind_of(memory_type, to_int(ordinal), managed).map(|device| Mapping { device, range }))
}

/// Returns the address under which devices reach memory. It differs from the host address for some registered memory,
/// and for no other.
///
/// # Errors
///
/// As [`pointer_attributes`]. [`ErrorKind::Device`] for memory that no device can reach, and for host memory that the
/// current device may not use: memory from a host pool belongs to the host alone until somebody gives devices access
/// (`cuMemPoolSetAccess`), which cuda.core does not do.
pub fn device_address(address: usize) -> Result<usize> {
    let driver = driver()?;
    if let Some(found) = pointer_attribute(driver, address, DEVICE_POINTER)? {
        return Ok(found);
    }
    match attributes_at(driver, address)? {
        Some(known) if known.device == Device::CUDA_HOST => {
            let found = text!("{address:#x}, memory of the host that the current device has no access to");
            let allowed = "memory that a device can reach";
            let error = Error::new(ErrorKind::Device, "data", found, allowed);
            Err(error.with_rust_hint(
                "give the device access to its pool (`cuMemPoolSetAccess`), or copy the array",
            ))
        }
        // The current context belongs to another device, which cannot reach the memory.
        Some(_) => Ok(address),
        None => Err(not_cuda(address, "memory that a device can reach")),
    }
}

/// Returns the address under which kernels reach memory that this crate knows by `address`.
///
/// The two are equal under unified addressing, with one exception: pinned memory that was registered rather than
/// allocated, on a device whose attribute `CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM` is 0 (CUDA driver API, "Unified
/// Addressing"). So the driver is queried for pinned memory. Without a driver nothing can be launched, and `address` is
/// good enough for code that is tested there.
///
/// # Errors
///
/// As [`device_address`].
pub(crate) fn address_for_kernels(address: usize, device: Device) -> Result<usize> {
    // An array without elements has address 0.
    if device != Device::CUDA_HOST || address == 0 || !is_available() {
        return Ok(address);
    }
    device_address(address)
}

/// Returns the host address of pinned memory. A producer may state the host or the device address.
///
/// # Errors
///
/// As [`pointer_attributes`].
pub(crate) fn host_address(address: usize) -> Result<usize> {
    Ok(pointer_attribute(driver()?, address, HOST_POINTER)?.unwrap_or(address))
}

/// Returns one attribute of the size of a pointer, or `None` for an address that is not CUDA memory.
///
/// Unlike the query for several attributes, it needs a current context.
fn pointer_attribute(driver: &Driver, address: usize, attribute: i32) -> Outcome<Option<usize>> {
    let _entered = match Context::current(driver)? {
        Some(_) => None,
        None => match attributes_at(driver, address)? {
            Some(known) => Some(known.context_or_primary(driver)?.enter(driver)?),
            None => return Ok(None),
        },
    };
    let mut value = 0_usize;
    // SAFETY: `value` is valid for a write of a pointer, which these attributes are.
    match unsafe { driver.pointer_attribute((&raw mut value).cast(), attribute, address as u64) } {
        Ok(()) => Ok(Some(value)),
        Err(failure) if failure.code == code::INVALID_VALUE => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl PointerAttributes {
    /// Returns a context in which the memory can be queried and freed.
    pub(crate) fn context_or_primary(&self, driver: &Driver) -> Outcome<Context> {
        self.context.map_or_else(|| Context::primary_of(driver, self.ordinal), Ok)
    }

    /// Returns whether all of these addresses lie in the mapping that contains the queried address.
    pub(crate) fn has_in_one_piece(&self, claimed: &Range<usize>) -> bool {
        self.piece.start <= claimed.start && claimed.end <= self.piece.end
    }

    /// Returns the address range of the allocation by `cuMemGetAddressRange`, which needs a current context. For memory
    /// that this call does not know either, returns the range of the mapping.
    ///
    /// It is needed for memory from a host pool, for which the attributes give a range that starts at an offset within
    /// the pool (driver 580).
    #[cold]
    fn block(&self, driver: &Driver, address: usize) -> Outcome<Range<usize>> {
        let _entered = match Context::current(driver)? {
            Some(_) => None,
            None => Some(self.context_or_primary(driver)?.enter(driver)?),
        };
        let (mut start, mut size) = (0, 0);
        // SAFETY: `start` and `size` are valid for writes.
        let answer = unsafe { driver.address_range(&raw mut start, &raw mut size, address as u64) };
        let start = to_usize(start);
        let range = start..start.saturating_add(size);
        match answer {
            Err(failure) if failure.code == code::NOT_FOUND => Ok(self.piece.clone()),
            answer => answer.map(|()| range),
        }
    }

    pub(crate) fn reach(&self, driver: &Driver) -> Reach {
        match (self.device.device_type, self.context) {
            (DeviceType::CUDA, Some(context)) => Reach::of_context(context),
            (DeviceType::CUDA, None) => reach_for(driver, self.device),
            (_, context) => Reach::of_all(context),
        }
    }

    /// Checks that elements lie in the allocation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::OutOfBounds`] if they do not.
    pub(crate) fn check_range(&self, driver: &Driver, claimed: &Range<usize>) -> Result<()> {
        let Range { start, end } = self.range;
        if claimed.start < start || end < claimed.end {
            let size = end - start;
            let allowed =
                text!("{start:#x} to {end:#x}, the allocation of {size} bytes that the driver knows there");
            return Err(out_of_bounds(claimed, allowed));
        }
        // Only memory without a context can consist of several mappings.
        let whole = self.context.is_some() || self.has_in_one_piece(claimed);
        if whole { Ok(()) } else { self.check_pieces(driver, claimed) }
    }

    /// Checks that memory of one kind is mapped under all elements. A program that maps memory itself (`cuMemMap`) can
    /// leave holes, and put memory of several devices side by side. Makes one query for each mapping.
    #[cold]
    fn check_pieces(&self, driver: &Driver, claimed: &Range<usize>) -> Result<()> {
        let (start, own) = (claimed.start, self.device);
        let mut at = start;
        while at < claimed.end {
            let mapping = match mapping_at(driver, at) {
                // A driver before 11.7 does not support the query.
                Err(failure) if failure.code == code::INVALID_VALUE => return Ok(()),
                answer => answer?,
            };
            at = match mapping {
                Some(Mapping { device, range }) if device == own => {
                    if !range.contains(&at) {
                        // Mapped by the driver, which does not report the range.
                        return Ok(());
                    }
                    range.end
                }
                Some(Mapping { device, .. }) => {
                    let allowed =
                        text!("{start:#x} to {at:#x}, where memory of {device} follows that of {own}");
                    return Err(out_of_bounds(claimed, allowed));
                }
                None => {
                    let allowed = text!("{start:#x} to {at:#x}, the end of the mapped memory");
                    return Err(out_of_bounds(claimed, allowed));
                }
            };
        }
        Ok(())
    }
}

#[cold]
pub(crate) fn not_cuda(address: usize, claimed: impl core::fmt::Display) -> Error {
    let found = text!("{address:#x}, which the driver does not know: a plain host address, or freed memory");
    Error::new(ErrorKind::Device, "data", found, format_args!("an address of {claimed}"))
}

/// Returns the reach of memory whose context is unknown, or that has none of its own, such as pool memory. It
/// may be in use in the current context, which need not be a primary one: some libraries make their own.
///
/// If a query fails, the reach is every context in use.
pub(crate) fn reach_for(driver: &Driver, device: Device) -> Reach {
    let primary = match device.device_type {
        DeviceType::CUDA => Context::primary_of(driver, device.device_id).ok(),
        _ => None,
    };
    let current = Context::current(driver).ok().flatten().filter(|current| Some(*current) != primary);
    let elsewhere = || Context::current_ordinal(driver).is_ok_and(|ordinal| ordinal != device.device_id);
    let own = current.filter(|_| primary.is_none() || !elsewhere());
    match (own, primary) {
        (None, Some(primary)) => Reach::of_context(primary),
        _ => Reach::of_all(own),
    }
}

/// Where memory is used.
pub(crate) struct MemoryUse {
    /// The context of the memory, if it has one.
    pub(crate) context: Option<Context>,
    pub(crate) reach: Reach,
}

/// Returns where memory is used. `None` for an array without elements, whose address is 0, for host memory and memory that the driver does not know, and without a driver.
///
/// # Errors
///
/// [`ErrorKind::Driver`] if the query fails.
pub(crate) fn memory_use(address: usize, device: Device) -> Result<Option<MemoryUse>> {
    let Ok(driver) = driver() else { return Ok(None) };
    if address == 0 || device.device_type == DeviceType::CPU {
        return Ok(None);
    }
    let attributes = attributes_at(driver, address)?;
    Ok(attributes
        .map(|attributes| MemoryUse { context: attributes.context, reach: attributes.reach(driver) }))
}

/// Returns the context of memory at an address, or else that in which memory of the device is used. The address 0 stands
/// for memory of the device in general.
///
/// # Errors
///
/// As [`memory_use`].
pub(crate) fn context_of_memory(address: usize, device: Device) -> Result<Context> {
    match memory_use(address, device)? {
        Some(MemoryUse { context: Some(context), .. }) => Ok(context),
        _ => context_for(driver()?, device),
    }
}

#[cold]
fn out_of_bounds(claimed: &Range<usize>, allowed: impl core::fmt::Display) -> Error {
    let found = text!("elements at {:#x} to {:#x}", claimed.start, claimed.end);
    Error::new(ErrorKind::OutOfBounds, "data", found, allowed)
}
