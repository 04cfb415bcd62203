//! A thread that looks at the releases that wait, for programs that ask for one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::parked::{drain_releases, finish_releases, wait_for_something};
use super::release::are_decided_by_waits;
use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;

/// Starts a thread that releases what was parked, for programs that import and export too rarely to do it in passing. It
/// looks about once a millisecond while something is parked, and runs until the program ends; a process that is forked has no such
/// thread until it asks for its own. It waits for the work only
/// with a driver before 12.5, for which see [`ReleasePolicy`](super::ReleasePolicy).
///
/// The thread cannot ask a library whether it captures a graph on another thread. A program that captures graphs holds
/// releases meanwhile ([`HoldReleases`](super::HoldReleases)).
///
/// # Errors
///
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when no thread can be made.
pub fn release_in_background() -> Result<()> {
    static STARTED: PerProcess<Mutex<bool>> = PerProcess::new(|_| Mutex::new(false));
    let mut started = STARTED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    let look = || loop {
        wait_for_something();
        drain_releases();
        if are_decided_by_waits() {
            finish_releases();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let thread = std::thread::Builder::new().name("interop-release".to_owned()).spawn(look);
    thread.map_err(|error| {
        Error::new(ErrorKind::Unsupported, "thread", error, "a thread that releases memory")
    })?;
    *started = true;
    Ok(())
}
