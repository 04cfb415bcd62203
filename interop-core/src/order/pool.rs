//! This crate's pools of each device, and the streams on which its memory is allocated and freed.
//!
//! Memory for work on a stream is allocated and freed on a stream of this crate that belongs to that consumer's stream. The
//! two are joined by events, so the next allocation for the same consumer has the memory without a wait on the host, and
//! no consumer waits for another. The pool inserts no dependencies of its own: memory would wait for work that may itself
//! wait for what the host has not queued yet.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::event::Event;
use crate::driver::functions::{CUmemoryPool, CUstream, Driver, DriverError, Outcome, code, opened};
use crate::driver::stream::{OwnHandle, OwnStream};
use crate::order::release::requests::{limit_of, make_all_room, make_room};
use crate::process::fork::PerProcess;
use crate::process::settings::SETTINGS;

/// Memory of a pool.
pub(crate) struct PoolMemory {
    pub(crate) address: u64,
    /// The key of the stream of this crate that was used.
    pub(crate) key: usize,
}

/// A pool of this crate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolOf {
    ordinal: i32,
    /// Whether other processes can open its memory: the pool has descriptors.
    is_for_others: bool,
}

impl PoolOf {
    pub(crate) fn device(ordinal: i32) -> Self {
        Self { ordinal, is_for_others: false }
    }

    /// The pool of what other processes get. They import it as a whole, so nothing else is in it.
    pub(crate) fn copies_for_others(ordinal: i32) -> Self {
        Self { ordinal, is_for_others: true }
    }

    /// Whether an allocation has failed because there is no such pool, so that plain device memory takes its place.
    pub(crate) fn is_missing_after(self, failure: &DriverError) -> bool {
        if self.is_for_others {
            // Whatever a driver says of a pool with descriptors.
            failure.code != code::OUT_OF_MEMORY
        } else {
            matches!(failure.code, code::NOT_FOUND | code::NOT_SUPPORTED)
        }
    }

    /// The bytes of the plain memory. That for other processes has its pages for itself, because they open whole pages.
    pub(crate) fn bytes_without(self, bytes: usize) -> usize {
        const PAGE: usize = 2 << 20;
        if self.is_for_others { bytes.checked_next_multiple_of(PAGE).unwrap_or(bytes) } else { bytes }
    }
}

/// Allocates from a pool, in the order of a stream of this crate. The stream of the consumer, if there is one, waits for the
/// allocation. The context is current.
pub(crate) fn allocate(
    driver: &'static Driver,
    home: OwnStream,
    consumer: Option<CUstream>,
    of: PoolOf,
    bytes: usize,
) -> Outcome<PoolMemory> {
    let allocate = |OwnHandle { key, raw }| {
        let address = allocate_on(driver, of, bytes, raw)?;
        // Neither stream captures a graph.
        let join = |consumer| Event::of_stream(driver, Some(home.context), raw)?.make_wait(consumer);
        if let Err(failure) = consumer.map_or(Ok(()), join) {
            // SAFETY: nobody has the memory yet; the stream is live.
            let _ = unsafe { driver.memory_pool_free(address, raw) };
            return Err(failure);
        }
        Ok(PoolMemory { address, key })
    };
    with_room(driver, of.ordinal, bytes, || home.with(driver, allocate)?)
}

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

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PoolProperties>() == 88);

/// `CUmemAccessDesc`.
#[repr(C)]
struct PoolAccess {
    location_type: c_int,
    location: c_int,
    flags: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: c_int = 1;

/// The pools from which copies and results are allocated.
///
/// A device's default pool returns its free memory to the driver whenever the host has waited for the device, because its
/// release threshold is 0. The next allocation maps the memory again, which takes longer than the copy into it. A pool of
/// this crate keeps some memory, and leaves the default pool as the program has set it.
static POOLS: PerProcess<Mutex<Vec<(PoolOf, CUmemoryPool)>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

fn pools() -> MutexGuard<'static, Vec<(PoolOf, CUmemoryPool)>> {
    POOLS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates from a pool, in stream order on a live stream of its device.
pub(crate) fn allocate_on(driver: &Driver, of: PoolOf, bytes: usize, stream: CUstream) -> Outcome<u64> {
    let mut address = 0;
    let mut allocate = || {
        let pool = known_or_new(driver, of)?;
        // SAFETY: `address` is valid for a write, and the pool and the stream are live.
        unsafe { driver.memory_pool_alloc(&raw mut address, bytes, pool, stream) }
    };
    match allocate() {
        Err(failure) if failure.is_about_handles() => {
            // The device was reset, which destroyed its pools.
            pools().retain(|(known, _)| known.ordinal != of.ordinal);
            allocate()?;
        }
        done => done?,
    }
    Ok(address)
}

fn known_or_new(driver: &Driver, of: PoolOf) -> Outcome<CUmemoryPool> {
    let mut pools = pools();
    if let Some((_, pool)) = pools.iter().find(|(known, _)| *known == of) {
        return Ok(*pool);
    }
    let pool = create(driver, of)?;
    pools.push((of, pool));
    Ok(pool)
}

fn create(driver: &Driver, PoolOf { ordinal, is_for_others }: PoolOf) -> Outcome<CUmemoryPool> {
    const PINNED: c_int = 1;
    const POSIX_FILE_DESCRIPTOR: c_int = 1;
    const REUSE_ALLOW_INTERNAL_DEPENDENCIES: c_int = 3;
    let properties = PoolProperties {
        allocation_type: PINNED,
        handle_types: if is_for_others { POSIX_FILE_DESCRIPTOR } else { 0 },
        location_type: DEVICE,
        location: ordinal,
        security_attributes: null_mut(),
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let mut pool = 0;
    // SAFETY: `pool` is valid for a write, and the properties live during the call.
    unsafe { driver.pool_create(&raw mut pool, (&raw const properties).cast()) }?;
    let mut off: c_int = 0;
    // SAFETY: the pool is live, and `off` is the `int` of this attribute.
    unsafe { driver.pool_set(pool, REUSE_ALLOW_INTERNAL_DEPENDENCIES, (&raw mut off).cast()) }?;
    set_threshold(driver, ordinal, pool)?;
    share_with_peers(driver, ordinal, pool);
    Ok(pool)
}

/// Sets how much free memory a pool keeps when the host waits for the device.
fn set_threshold(driver: &Driver, ordinal: i32, pool: CUmemoryPool) -> Outcome {
    const RELEASE_THRESHOLD: c_int = 4;
    let mut kept = limit_of(driver, ordinal)? as u64;
    // SAFETY: the pool is live, and `kept` has the 64 bits of this attribute.
    unsafe { driver.pool_set(pool, RELEASE_THRESHOLD, (&raw mut kept).cast()) }
}

/// Lets every device that can reach the memory use it, as it may use memory of `cuMemAlloc` once peer access is enabled.
fn share_with_peers(driver: &Driver, ordinal: i32, pool: CUmemoryPool) {
    const READ_AND_WRITE: c_int = 3;
    for peer in (0..driver.devices().unwrap_or(0)).filter(|peer| *peer != ordinal) {
        let mut can: c_int = 0;
        // SAFETY: any number may be queried; `can` is valid for a write.
        let asked = unsafe { driver.peer_access(&raw mut can, peer, ordinal) };
        if asked.is_ok() && can != 0 {
            let access = PoolAccess { location_type: DEVICE, location: peer, flags: READ_AND_WRITE };
            // Without access, a kernel of that device fails with an error, as without peer access.
            // SAFETY: the pool is live, and the description lives during the call.
            let _ = unsafe { driver.pool_set_access(pool, (&raw const access).cast(), 1) };
        }
    }
}

/// Sets how many bytes of each device's memory may wait for their release before an allocation waits for the oldest
/// release. `None` is the default: a thirty-second of the device's memory, and at most 1.5 GiB.
///
/// A program that drops arrays faster than the device works on them would otherwise hold ever more memory. At the limit an
/// allocation by this crate waits on the host, at most 20 ms for one release, with Python's interpreter lock given up. If
/// the release is not due by then, or has no event yet because of a capture or a [`HoldReleases`](crate::cuda::HoldReleases),
/// the allocation goes on, more memory is held, and no later allocation waits for that release. Imports, exports and drops
/// never wait.
///
/// The pools of this crate keep as many bytes of free memory when the host waits for a device.
///
/// # Errors
///
/// [`ErrorKind::Driver`](crate::ErrorKind::Driver) with the driver's answer for a pool that exists.
///
/// ```
/// interop_core::cuda::set_release_limit(Some(256 << 20))?; // a small GPU
/// interop_core::cuda::set_release_limit(None)?;
/// # Ok::<(), interop_core::Error>(())
/// ```
pub fn set_release_limit(bytes: Option<usize>) -> crate::Result<()> {
    SETTINGS.release_limit.store(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
    let set = |driver| pools().iter().try_for_each(|(of, pool)| set_threshold(driver, of.ordinal, *pool));
    Ok(opened().map_or(Ok(()), set)?)
}

/// Returns the free memory of this crate's memory pools to the driver.
///
/// Copies on a device (`copy=True`) and [`MemoryKind::Pool`](crate::cuda::MemoryKind::Pool) allocate from a pool of
/// each device. It keeps as much free memory as [`set_release_limit`](crate::cuda::set_release_limit) allows. Call this
/// before other code of the process needs nearly all of the device's memory. Memory that is in use, or whose release is
/// still deferred, stays.
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

/// Runs an allocation on a device, after a limited wait if too much is deferred there. If no memory is left, waits for
/// what is deferred, returns the free memory of the pools, and runs it once more.
pub(crate) fn with_room<R>(
    driver: &Driver,
    ordinal: i32,
    bytes: usize,
    mut allocate: impl FnMut() -> Outcome<R>,
) -> Outcome<R> {
    make_room(driver, ordinal, bytes);
    match allocate() {
        Err(failure) if failure.code == code::OUT_OF_MEMORY => {
            make_all_room(ordinal);
            trim(driver)?;
            allocate()
        }
        done => done,
    }
}
