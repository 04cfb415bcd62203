//! What the driver knows of an address.

use core::ffi::c_void;
use core::ops::Range;

use crate::array::device::Device;
use crate::cuda::allocation::to_usize;
use crate::cuda::context::Context;
use crate::cuda::driver::{Driver, Outcome, code, driver, is_available};
use crate::error::{Error, ErrorKind, Result, text};

/// `CU_POINTER_ATTRIBUTE_...`
const CONTEXT: i32 = 1;

const MEMORY_TYPE: i32 = 2;

const DEVICE_POINTER: i32 = 3;

const HOST_POINTER: i32 = 4;

const IS_MANAGED: i32 = 8;

const DEVICE_ORDINAL: i32 = 9;

const RANGE_START: i32 = 11;

const RANGE_SIZE: i32 = 12;

const MAPPING_SIZE: i32 = 18;

const MAPPING_BASE: i32 = 19;

/// `CU_MEMORYTYPE_...`
const HOST: usize = 1;

const DEVICE: usize = 2;

/// What the driver knows of an address (`cuPointerGetAttributes`, one call for nearly all memory).
///
/// ```no_run
/// use interop_core::{cuda, Device};
///
/// # let address = 0x7f00_0000_0000;
/// match cuda::pointer_attributes(address)? {
///     Some(known) if known.device() == Device::cuda(0) => println!("{} bytes of GPU 0", known.range().len()),
///     Some(known) => println!("{}", known.device()),
///     None => println!("not memory of CUDA: a plain host address, or one that was freed"),
/// }
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq)]
pub struct PointerAttributes {
    device: Device,
    ordinal: i32,
    context: Option<Context>,
    range: Range<usize>,
    /// What is mapped at the address in one piece; empty where the driver does not say it.
    piece: Range<usize>,
}

/// What is mapped in one piece is a fact of the address, and no part of what is known of the memory.
impl PartialEq for PointerAttributes {
    fn eq(&self, other: &Self) -> bool {
        let info = |known: &Self| (known.device, known.ordinal, known.context, known.range.clone());
        info(self) == info(other)
    }
}

impl PointerAttributes {
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

    /// The context that the memory was allocated in; `None` for memory that has none: from a pool, or mapped by the program
    /// (`cuMemMap`).
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        self.context
    }

    /// The addresses of the allocation. For memory from a caching allocator that is the allocator's block. For memory that
    /// the program maps itself (`cuMemMap`, as PyTorch does with `expandable_segments`) it is all that was reserved, of which
    /// parts may have no memory.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// Asks the driver what memory an address is in; `None` for an address that is not CUDA's.
///
/// # Errors
///
/// [`ErrorKind::Driver`] without a driver, and when it cannot answer.
pub fn pointer_attributes(address: usize) -> Result<Option<PointerAttributes>> {
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

/// Everything about an address, in one call for nearly all memory.
pub(crate) fn ask(driver: &Driver, address: usize) -> Outcome<Option<PointerAttributes>> {
    let [memory_type, ordinal, managed, context, start, size, base, bytes] = all_answers(driver, address)?;
    let (ordinal, context) = (to_int(ordinal), Context::from_driver(context));
    let Some(device) = kind_of(memory_type, ordinal, managed) else { return Ok(None) };
    // Made once its range is known: what is changed after it was made is read back from memory, which stalls.
    let known = |range, piece| PointerAttributes { device, ordinal, context, range, piece };
    let (named, piece) = (start..start.saturating_add(size), base..base.saturating_add(bytes));
    let range =
        if named.contains(&address) { named } else { known(named, piece.clone()).block(driver, address)? };
    Ok(Some(known(range, piece)))
}

/// The answers to all questions about an address. A driver before 11.7 does not know the last two, and has no answers then.
fn all_answers(driver: &Driver, address: usize) -> Outcome<[usize; 8]> {
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
    match answers(driver, address, ASKED) {
        Err(failure) if failure.code == code::INVALID_VALUE => {
            let [known @ .., _, _] = ASKED;
            let mut all = [0; ASKED.len()];
            all[..known.len()].copy_from_slice(&answers(driver, address, known)?);
            Ok(all)
        }
        answer => answer,
    }
}

/// The lower half of a word, where the driver wrote an `int`.
#[expect(clippy::cast_possible_truncation, reason = "the driver wrote an `int`")]
fn to_int(answer: usize) -> i32 {
    answer as i32
}

/// The kind of memory that the driver's answers name; `None` for an address that is not CUDA's.
fn kind_of(memory_type: usize, ordinal: i32, managed: usize) -> Option<Device> {
    match (memory_type, managed) {
        (_, 1..) => Some(Device::CUDA_MANAGED),
        (HOST, _) => Some(Device::CUDA_HOST),
        (DEVICE, _) => Some(Device::cuda(ordinal)),
        _ => None,
    }
}

/// Whether an address is memory of a device that the host cannot reach: two questions, at half the price of all. One that
/// failed says nothing: a process that was forked has a driver that answers errors only.
pub(crate) fn is_of_a_device(driver: &Driver, address: usize) -> bool {
    let known = || answers(driver, address, [MEMORY_TYPE, IS_MANAGED]);
    // An array without elements is nowhere.
    address != 0 && known().is_ok_and(|known| known == [DEVICE, 0])
}

/// The kind of the memory that is mapped at an address in one piece, and the addresses of the piece, among which the address
/// is not where the driver does not say them; `None` where there is none.
pub(crate) fn piece_at(driver: &Driver, address: usize) -> Outcome<Option<(Device, Range<usize>)>> {
    let asked = [MEMORY_TYPE, DEVICE_ORDINAL, IS_MANAGED, MAPPING_BASE, MAPPING_SIZE];
    let [memory_type, ordinal, managed, base, size] = answers(driver, address, asked)?;
    let piece = base..base.saturating_add(size);
    Ok(kind_of(memory_type, to_int(ordinal), managed).map(|device| (device, piece)))
}

/// The address under which devices reach memory: another than the host's for some registered memory, the same for all
/// other.
///
/// # Errors
///
/// As [`pointer_attributes`]; [`ErrorKind::Device`] for memory that no device can reach, and for memory of the host that the
/// current device may not use: that from a pool of the host belongs to the host alone until somebody gives devices access
/// (`cuMemPoolSetAccess`), as cuda.core does not.
pub fn device_address(address: usize) -> Result<usize> {
    let driver = driver()?;
    if let Some(found) = one(driver, address, DEVICE_POINTER)? {
        return Ok(found);
    }
    match ask(driver, address)? {
        Some(known) if known.device == Device::CUDA_HOST => {
            let found = text!("{address:#x}, memory of the host that the current device has no access to");
            let allowed = "memory that a device can reach";
            let error = Error::new(ErrorKind::Device, "data", found, allowed);
            Err(error.with_rust_hint(
                "give the device access to its pool (`cuMemPoolSetAccess`), or copy the array",
            ))
        }
        // The context that is current is of another device, which cannot reach it.
        Some(_) => Ok(address),
        None => Err(not_cuda(address, "memory that a device can reach")),
    }
}

/// The address under which kernels see memory of a device that is known here under `address`.
///
/// They are the same under unified addressing, with one exception: pinned memory that was registered rather than
/// allocated, on a device whose attribute `CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM` is 0 (CUDA driver API, "Unified
/// Addressing"). So the driver is asked about pinned memory. Where there is no driver nothing can be launched, and the
/// address is good for code that is tested there.
///
/// # Errors
///
/// As [`device_address`].
pub(crate) fn address_for_kernels(address: usize, device: Device) -> Result<usize> {
    // An array without elements is nowhere.
    if device != Device::CUDA_HOST || address == 0 || !is_available() {
        return Ok(address);
    }
    device_address(address)
}

/// The address under which the host has pinned memory, of which a producer may name either.
///
/// # Errors
///
/// As [`pointer_attributes`].
pub(crate) fn host_address(address: usize) -> Result<usize> {
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

impl PointerAttributes {
    /// A context in which the memory can be asked about, and freed.
    pub(crate) fn home(&self, driver: &Driver) -> Outcome<Context> {
        self.context.map_or_else(|| Context::primary_of(driver, self.ordinal), Ok)
    }

    /// Whether all of these addresses are mapped in the piece that was asked about.
    pub(crate) fn has_in_one_piece(&self, claimed: &Range<usize>) -> bool {
        self.piece.start <= claimed.start && claimed.end <= self.piece.end
    }

    /// The addresses of the allocation, by the question that is for nothing else, which wants a context to be current; for
    /// memory that it does not know either, those of the piece that is mapped there.
    ///
    /// The attributes name a range that starts at a number within the pool for memory from a pool of the host (driver 580).
    #[cold]
    fn block(&self, driver: &Driver, address: usize) -> Outcome<Range<usize>> {
        let _entered = match Context::current(driver)? {
            Some(_) => None,
            None => Some(self.home(driver)?.enter(driver)?),
        };
        let (mut start, mut size) = (0, 0);
        // SAFETY: places for an address and a number of bytes.
        let answer = unsafe { driver.address_range(&raw mut start, &raw mut size, address as u64) };
        let start = to_usize(start);
        let range = start..start.saturating_add(size);
        match answer {
            Err(failure) if failure.code == code::NOT_FOUND => Ok(self.piece.clone()),
            answer => answer.map(|()| range),
        }
    }
}

#[cold]
pub(crate) fn not_cuda(address: usize, claimed: impl core::fmt::Display) -> Error {
    let found = text!("{address:#x}, which the driver does not know: a plain host address, or freed memory");
    Error::new(ErrorKind::Device, "data", found, format_args!("an address of {claimed}"))
}
