//! What others ask of deferred releases: a program to poll them, and to hold them; an allocation to make room. At the limit
//! it waits a limited time for the oldest release.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[cfg(any(feature = "python", feature = "cudarc"))]
use crate::array::device::{Device, DeviceType};
use crate::driver::context::{KnownDevice, known_device};
#[cfg(any(feature = "python", feature = "cudarc"))]
use crate::driver::functions::opened;
use crate::driver::functions::{Driver, Outcome, run_blocking};
use crate::error::{Error, ErrorKind, Result};
use crate::order::release::hold::{HoldState, hold, need_synchronize};
use crate::order::release::queue::{
    Poll, drain, finish_releases, give_up_on_oldest, is_worth_waiting, lock_thread_started, make_due, poll,
    wait_until_not_empty,
};
use crate::process::settings::SETTINGS;

/// Records missing events, releases memory whose work is done, and returns the number of releases that are still
/// deferred.
///
/// Exports, allocations and releases of CUDA memory poll in passing, and so does
/// [`make_stream_wait`](crate::derive::cuda_array::CudaArray::make_stream_wait).
#[cfg(feature = "counters")]
#[expect(clippy::must_use_candidate, reason = "called for what it does")]
pub fn poll_releases() -> usize {
    poll()
}

/// Starts a thread that polls deferred releases, for programs that import and export too rarely to poll in passing.
///
/// The thread polls about once a millisecond while something is deferred, and runs until the program ends. A forked
/// process has no such thread until it starts its own. The thread waits for work on the host only with a driver before
/// 12.5; see [`ReleasePolicy`](crate::order::release::ReleasePolicy).
///
/// The thread cannot ask a library whether it captures a graph on another thread. A program that captures graphs holds
/// releases meanwhile ([`HoldReleases`]).
///
/// # Errors
///
/// [`ErrorKind::Unsupported`](crate::error::ErrorKind::Unsupported) if the thread cannot be started.
pub fn start_release_thread() -> Result<()> {
    let mut started = lock_thread_started();
    if *started {
        return Ok(());
    }
    let run = || loop {
        wait_until_not_empty();
        poll();
        if need_synchronize() {
            finish_releases();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let thread = std::thread::Builder::new().name("interop-release".to_owned()).spawn(run);
    thread.map_err(|error| {
        Error::new(ErrorKind::Unsupported, "thread", error, "a thread that releases memory")
    })?;
    *started = true;
    Ok(())
}

/// A guard that defers releases without recording events. Hold one while a graph is captured on a non-blocking stream,
/// so that nothing that is dropped meanwhile affects the capture.
///
/// A release that the program orders itself ([`set_unordered`](crate::cuda::set_unordered)) needs no event and is not held.
///
/// ```
/// use interop_core::cuda::HoldReleases;
///
/// let is_held = HoldReleases::new();
/// // ... capture a graph; imports and exports may be dropped ...
/// drop(is_held);
/// ```
#[derive(Debug)]
pub struct HoldReleases(&'static HoldState);

impl HoldReleases {
    /// Holds releases from now on, on all threads.
    ///
    /// Waits for the threads that are recording events. One of them may be waiting for a device (drivers before 12.5).
    /// With Python, call this function in `py.detach`, because the work of the device may include a host function that
    /// needs the interpreter's lock.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a guard that is made by mistake should not be easy to make"
    )]
    pub fn new() -> Self {
        Self(hold())
    }
}

impl Drop for HoldReleases {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
        make_due();
    }
}

/// How long an allocation waits for one event.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// How long it sleeps between two queries. Linux adds about 50 µs.
const PAUSE: Duration = Duration::from_micros(10);

/// The most that is deferred for one device by default: this part of its memory, and not more than this.
const DEFAULT_PART: usize = 32;
const DEFAULT_MOST: usize = 3 << 29;

/// Returns the limit for a device. The driver is asked once for the default.
pub(crate) fn limit_of(driver: &Driver, ordinal: i32) -> Outcome<usize> {
    let set = SETTINGS.release_limit.load(Ordering::Relaxed);
    if set != usize::MAX {
        return Ok(set);
    }
    let known = known_device(ordinal).map(|known| &known.release_limit);
    let limit = known.map_or(0, |known| known.load(Ordering::Relaxed));
    if limit != 0 {
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

/// Waits until fewer bytes are deferred on a device than the limit allows beside an allocation of `bytes`. Gives up after
/// a limited time for each release.
pub(crate) fn make_room(driver: &Driver, ordinal: i32, bytes: usize) {
    let Some(KnownDevice { deferred, .. }) = known_device(ordinal) else { return };
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
    if let Some(known) = known_device(ordinal) {
        wait_below(&known.deferred, ordinal, 0);
    }
}

#[cold]
fn wait_below(deferred: &AtomicUsize, ordinal: i32, most: usize) {
    make_due();
    drain(Poll::Opportunistic);
    let is_over = || deferred.load(Ordering::Relaxed) > most;
    if !is_over() || !is_worth_waiting(ordinal) {
        return;
    }
    run_blocking(|| {
        let (mut held, mut since) = (deferred.load(Ordering::Relaxed), Instant::now());
        while is_over() && is_worth_waiting(ordinal) {
            std::thread::sleep(PAUSE);
            drain(Poll::Opportunistic);
            let now = deferred.load(Ordering::Relaxed);
            if now < held {
                (held, since) = (now, Instant::now());
            } else if since.elapsed() >= LONGEST_WAIT {
                return give_up_on_oldest(ordinal);
            }
        }
    });
}
