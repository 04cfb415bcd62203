//! The memory pool of each device, from which copies and results are allocated.
//!
//! The device's default pool returns its free memory to the driver whenever the host has waited for the device, because
//! its release threshold is 0. The next allocation maps the memory again, which takes longer than the copy into it. A
//! pool of our own keeps some memory, and leaves the default pool as the program has set it.

use core::ffi::c_int;
use core::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::driver::{Driver, Outcome, RawPool, RawStream, code, opened};
use crate::process::fork::PerProcess;

/// The part of a device's memory that its pool keeps when it is free: 1 / `KEPT_PART`.
const KEPT_PART: u64 = 8;

/// `CUmemPoolProps`.
#[repr(C)]
struct PoolProperties {
    allocation_type: c_int,
    handle_types: c_int,
    location_type: c_int,
    location: c_int,
    security_attributes: *mut u8,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

const _: () = assert!(size_of::<PoolProperties>() == 88);

/// The pools by the ordinals of their devices.
static POOLS: PerProcess<Mutex<Vec<(i32, RawPool)>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

fn pools() -> MutexGuard<'static, Vec<(i32, RawPool)>> {
    POOLS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates from the pool of a device, in stream order on a live stream of that device.
pub(crate) fn allocate(driver: &Driver, ordinal: i32, bytes: usize, stream: RawStream) -> Outcome<u64> {
    let pool = pool_of(driver, ordinal)?;
    let mut address = 0;
    // SAFETY: `address` is valid for a write, and the pool and the stream are live.
    match unsafe { driver.memory_pool_alloc(&raw mut address, bytes, pool, stream) } {
        Ok(()) => Ok(address),
        Err(failure) => {
            if failure.is_about_handles() {
                // The device was reset, which destroyed the pool.
                pools().retain(|(of, _)| *of != ordinal);
            }
            Err(failure)
        }
    }
}

fn pool_of(driver: &Driver, ordinal: i32) -> Outcome<RawPool> {
    let mut pools = pools();
    if let Some((_, pool)) = pools.iter().find(|(of, _)| *of == ordinal) {
        return Ok(*pool);
    }
    let pool = create(driver, ordinal)?;
    pools.push((ordinal, pool));
    Ok(pool)
}

fn create(driver: &Driver, ordinal: i32) -> Outcome<RawPool> {
    const PINNED: c_int = 1;
    const DEVICE: c_int = 1;
    const RELEASE_THRESHOLD: c_int = 4;
    let properties = PoolProperties {
        allocation_type: PINNED,
        handle_types: 0,
        location_type: DEVICE,
        location: ordinal,
        security_attributes: null_mut(),
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let (mut pool, mut bytes) = (0, 0);
    // SAFETY: `pool` is valid for a write, and the properties live during the call.
    unsafe { driver.pool_create(&raw mut pool, (&raw const properties).cast()) }?;
    // SAFETY: `bytes` is valid for a write.
    unsafe { driver.device_memory(&raw mut bytes, ordinal) }?;
    let mut kept = bytes as u64 / KEPT_PART;
    // SAFETY: the pool is live, and `kept` has the 64 bits of this attribute.
    unsafe { driver.pool_set(pool, RELEASE_THRESHOLD, (&raw mut kept).cast()) }?;
    Ok(pool)
}

/// Returns the free memory of this crate's memory pools to the driver.
///
/// Copies on a device (`copy=True`) and [`MemoryKind::Pool`](crate::cuda::MemoryKind::Pool) allocate from a pool of
/// each device. It keeps up to an eighth of the device's memory for later allocations. Call this before other code of
/// the process needs nearly all of the device's memory. Memory that is in use, or whose release is still deferred,
/// stays.
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::ErrorKind::Driver) with the driver's answer (`cuMemPoolTrimTo`).
///
/// ```
/// interop_core::cuda::trim_memory_pools()?; // nothing to do without a driver
/// # Ok::<(), interop_core::Error>(())
/// ```
pub fn trim_memory_pools() -> crate::Result<()> {
    let Some(driver) = opened() else { return Ok(()) };
    Ok(trim(driver)?)
}

fn trim(driver: &Driver) -> Outcome {
    pools().iter().try_for_each(|(_, pool)| {
        // SAFETY: the pool is live.
        unsafe { driver.pool_trim(*pool, 0) }
    })
}

/// Runs an allocation of other memory. If no memory is left, trims the pools and runs it once more.
pub(crate) fn with_trimmed_pools(driver: &Driver, mut allocate: impl FnMut() -> Outcome) -> Outcome {
    match allocate() {
        Err(failure) if failure.code == code::OUT_OF_MEMORY && !pools().is_empty() => {
            trim(driver)?;
            allocate()
        }
        done => done,
    }
}
