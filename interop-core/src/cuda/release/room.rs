//! Room for an allocation: at the limit of deferred releases it waits a limited time for the oldest.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[cfg(any(feature = "python", feature = "cudarc"))]
use crate::array::device::{Device, DeviceType};
use crate::cuda::blocking::run_blocking;
use crate::cuda::driver::Driver;
#[cfg(any(feature = "python", feature = "cudarc"))]
use crate::cuda::driver::opened;
use crate::cuda::release::batch::make_due;
use crate::cuda::release::limit::{DEFAULT_MOST, deferred_on, limit_of};
use crate::cuda::release::queue::{give_up_on_oldest, is_worth_waiting, poll_for_room};
use crate::cuda::release::trusted::release_otherwise;

/// How long an allocation waits for one event.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// How long it sleeps between two queries. Linux adds about 50 µs.
const PAUSE: Duration = Duration::from_micros(10);

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
