//! The limit of deferred releases, in bytes, and what is deferred on each device.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::cuda::driver::{Driver, Outcome};
use crate::cuda::release::scope::ReleaseScope;
use crate::process::fork::PerProcess;

/// The most that is deferred for one device by default: this part of its memory, and not more than this.
const DEFAULT_PART: usize = 32;
pub(crate) const DEFAULT_MOST: usize = 3 << 29;

/// The limit for each device, in bytes; `usize::MAX` for the default.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The bytes whose release is deferred, by the ordinal of their device.
static DEFERRED: PerProcess<[AtomicUsize; 64]> = PerProcess::new(|_| [const { AtomicUsize::new(0) }; 64]);

pub(crate) fn deferred_on(ordinal: i32) -> Option<&'static AtomicUsize> {
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
        usize::MAX => default_of(driver, ordinal),
        limit => Ok(limit),
    }
}

/// Returns the default for a device. The driver is asked once for each.
fn default_of(driver: &Driver, ordinal: i32) -> Outcome<usize> {
    static KNOWN: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
    let known = usize::try_from(ordinal).ok().and_then(|ordinal| KNOWN.get(ordinal));
    if let Some(limit) = known.map(|known| known.load(Ordering::Relaxed)).filter(|limit| *limit != 0) {
        return Ok(limit);
    }
    let mut bytes = 0;
    // SAFETY: `bytes` is valid for a write.
    unsafe { driver.device_memory(&raw mut bytes, ordinal) }?;
    let limit = (bytes / DEFAULT_PART).min(DEFAULT_MOST);
    if let Some(known) = known {
        known.store(limit, Ordering::Relaxed);
    }
    Ok(limit)
}

/// Stores the limit for each device; `None` for the default.
pub(crate) fn store_limit(bytes: Option<usize>) {
    LIMIT.store(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
}
