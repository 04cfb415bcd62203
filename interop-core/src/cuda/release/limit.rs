//! The limit of deferred releases, in bytes: at the limit an allocation waits a limited time for the oldest.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[cfg(any(feature = "python", feature = "cudarc"))]
use crate::array::device::{Device, DeviceType};
use crate::cuda::blocking::run_blocking;
use crate::cuda::driver::{Driver, Outcome, opened};
use crate::cuda::pool::set_release_thresholds;
use crate::cuda::release::batch::make_due;
use crate::cuda::release::queue::{give_up_on_oldest, is_worth_waiting, poll_for_room};
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::release::trusted::release_otherwise;
use crate::error::Result;
use crate::process::fork::PerProcess;

/// The most that is deferred for one device by default: this part of its memory, and not more than this.
const DEFAULT_PART: usize = 32;
const DEFAULT_MOST: usize = 3 << 29;

/// How long an allocation waits for one event.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// How long it sleeps between two queries. Linux adds about 50 µs.
const PAUSE: Duration = Duration::from_micros(10);

/// The limit for each device, in bytes; `usize::MAX` for the default.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The bytes whose release is deferred, by the ordinal of their device.
static DEFERRED: PerProcess<[AtomicUsize; 64]> = PerProcess::new(|_| [const { AtomicUsize::new(0) }; 64]);

fn deferred_on(ordinal: i32) -> Option<&'static AtomicUsize> {
    DEFERRED.get().get(usize::try_from(ordinal).ok()?)
}

fn counter(scope: ReleaseScope) -> Option<&'static AtomicUsize> {
    if scope.bytes() == 0 { None } else { deferred_on(scope.ordinal()?) }
}

/// Counts a release that is deferred.
pub(crate) fn count_deferred(scope: ReleaseScope) {
    if let Some(counter) = counter(scope) {
        counter.fetch_add(scope.bytes(), Ordering::Relaxed);
    }
}

/// Counts a deferred release that is done.
pub(crate) fn count_released(scope: ReleaseScope) {
    if let Some(counter) = counter(scope) {
        // A fork in between leaves the child's counter at 0.
        let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
            Some(bytes.saturating_sub(scope.bytes()))
        });
    }
}

/// Returns the limit for a device.
pub(crate) fn limit_of(driver: &Driver, ordinal: i32) -> Outcome<usize> {
    match LIMIT.load(Ordering::Relaxed) {
        usize::MAX => {
            let mut bytes = 0;
            // SAFETY: `bytes` is valid for a write.
            unsafe { driver.device_memory(&raw mut bytes, ordinal) }?;
            Ok((bytes / DEFAULT_PART).min(DEFAULT_MOST))
        }
        limit => Ok(limit),
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
pub fn set_release_limit(bytes: Option<usize>) -> Result<()> {
    LIMIT.store(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
    opened().map_or(Ok(()), |driver| Ok(set_release_thresholds(driver)?))
}

/// Waits until fewer bytes are deferred on a device than the limit allows beside an allocation of `bytes`. Gives up after
/// a limited time for each release.
pub(crate) fn make_room(driver: &Driver, ordinal: i32, bytes: usize) {
    let Some(deferred) = deferred_on(ordinal) else { return };
    let held = deferred.load(Ordering::Relaxed);
    if held == 0 {
        return;
    }
    let limit = limit_of(driver, ordinal).unwrap_or(DEFAULT_MOST);
    if held.saturating_add(bytes) > limit {
        wait_below(deferred, ordinal, limit.saturating_sub(bytes));
    }
}

/// As [`make_room`], before another library allocates on a device, which may hold memory whose release is deferred.
#[cfg(any(feature = "python", feature = "cudarc"))]
pub(crate) fn make_room_on(device: Device, bytes: usize) {
    if let (DeviceType::CUDA, Some(driver)) = (device.device_type, opened()) {
        make_room(driver, device.device_id, bytes);
    }
}

/// Waits until nothing is deferred on a device, or until the releases that are left are not due after a limited time.
pub(crate) fn make_all_room(ordinal: i32) {
    if let Some(deferred) = deferred_on(ordinal) {
        wait_below(deferred, ordinal, 0);
    }
}

#[cold]
fn wait_below(deferred: &AtomicUsize, ordinal: i32, most: usize) {
    release_otherwise();
    make_due();
    poll_for_room();
    let is_over = || deferred.load(Ordering::Relaxed) > most;
    if !is_over() || !is_worth_waiting(ordinal) {
        return;
    }
    run_blocking(|| {
        let (mut held, mut since) = (deferred.load(Ordering::Relaxed), Instant::now());
        while is_over() && is_worth_waiting(ordinal) {
            std::thread::sleep(PAUSE);
            poll_for_room();
            let now = deferred.load(Ordering::Relaxed);
            if now < held {
                (held, since) = (now, Instant::now());
            } else if since.elapsed() >= LONGEST_WAIT {
                return give_up_on_oldest(ordinal);
            }
        }
    });
}
