//! Memory that this crate allocates, in pools too, and how it is freed.

use core::ffi::c_int;
use core::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::blocking::run_blocking;
use crate::cuda::context::{Context, Relaxed};
use crate::cuda::driver::{Driver, Outcome, RawPool, RawStream, code, driver, opened};
use crate::cuda::stream_query::{LEGACY, capture_of};
use crate::process::counters;
use crate::process::fork::PerProcess;

/// Allocated memory. Its drop frees it.
pub(crate) struct Allocation {
    pub(crate) address: usize,
    pub(crate) kind: MemoryKind,
    pub(crate) context: Context,
}

impl Allocation {
    /// Forgets the allocation, because the call that frees it was already made.
    #[cfg(feature = "python")]
    pub(crate) fn was_freed(self) {
        core::mem::forget(self);
        counters::ALLOCATIONS.sub();
    }

    fn free(&self, driver: &Driver) -> Outcome {
        let _entered = self.context.enter(driver)?;
        let _relaxed = Relaxed::new(driver);
        match self.kind {
            // SAFETY: the allocation owns the memory and frees it once.
            MemoryKind::Device | MemoryKind::Managed => unsafe { driver.memory_free(self.address as u64) },
            MemoryKind::Pool => {
                // SAFETY: as above; the stream is live.
                with_usable_stream(driver, |stream| unsafe {
                    driver.memory_pool_free(self.address as u64, stream)
                })
            }
            // SAFETY: as above.
            MemoryKind::Pinned => unsafe {
                driver.memory_host_free(with_exposed_provenance_mut(self.address))
            },
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            let free = || {
                // If the context is gone, the memory was freed with it.
                let _ = self.free(driver);
            };
            // Freeing pool memory does not wait.
            if self.kind == MemoryKind::Pool { free() } else { run_blocking(free) }
        }
        counters::ALLOCATIONS.sub();
    }
}

/// The kinds of CUDA memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of one device (`cuMemAlloc`).
    Device,
    /// Memory of one device from this crate's stream-ordered pool for it (`cuMemAllocFromPoolAsync`).
    Pool,
    /// Host memory that all devices can reach (`cuMemHostAlloc`, portable).
    Pinned,
    /// Memory that the driver moves between host and devices (`cuMemAllocManaged`).
    Managed,
}

/// Queues work on a stream of the current context and waits for it.
pub(crate) fn finished(driver: &Driver, work: impl FnOnce(RawStream) -> Outcome) -> Outcome {
    with_usable_stream(driver, |stream| {
        work(stream)?;
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(stream) }
    })
}

/// Runs `work` with the legacy default stream of the current context. While a stream that synchronizes with it captures
/// a graph, using it would invalidate the capture. Then `work` gets a stream that is created for this call only.
pub(crate) fn with_usable_stream<R>(
    driver: &Driver,
    work: impl FnOnce(RawStream) -> Outcome<R>,
) -> Outcome<R> {
    const NON_BLOCKING: u32 = 1;
    if capture_of(driver, LEGACY).is_ok() {
        return work(LEGACY);
    }
    let mut stream = 0;
    // SAFETY: `stream` is valid for a write.
    unsafe { driver.stream_create(&raw mut stream, NON_BLOCKING) }?;
    let done = work(stream);
    // SAFETY: the stream was created above and is not used any more.
    let _ = unsafe { driver.stream_destroy(stream) };
    done
}

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

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PoolProperties>() == 88);

/// The pools by the ordinals of their devices, from which copies and results are allocated.
///
/// A device's default pool returns its free memory to the driver whenever the host has waited for the device, because its
/// release threshold is 0. The next allocation maps the memory again, which takes longer than the copy into it. A pool of
/// this crate keeps some memory, and leaves the default pool as the program has set it.
static POOLS: PerProcess<Mutex<Vec<(i32, RawPool)>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

fn pools() -> MutexGuard<'static, Vec<(i32, RawPool)>> {
    POOLS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates from the pool of a device, in stream order on a live stream of that device.
pub(crate) fn allocate_in_pool(
    driver: &Driver,
    ordinal: i32,
    bytes: usize,
    stream: RawStream,
) -> Outcome<u64> {
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
