//! A background thread that polls deferred releases, for programs that start it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cuda::release::queue::{finish_releases, poll_releases, wait_until_not_empty};
use crate::cuda::release::record::need_synchronize;
use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::PerProcess;

/// Starts a thread that polls deferred releases, for programs that import and export too rarely to poll in passing.
///
/// The thread polls about once a millisecond while something is deferred, and runs until the program ends. A forked
/// process has no such thread until it starts its own. The thread waits for work on the host only with a driver before
/// 12.5; see [`ReleasePolicy`](crate::cuda::release::policy::ReleasePolicy).
///
/// The thread cannot ask a library whether it captures a graph on another thread. A program that captures graphs holds
/// releases meanwhile ([`HoldReleases`](crate::cuda::release::hold::HoldReleases)).
///
/// # Errors
///
/// [`ErrorKind::Unsupported`](crate::error::ErrorKind::Unsupported) if the thread cannot be started.
pub fn start_release_thread() -> Result<()> {
    static STARTED: PerProcess<Mutex<bool>> = PerProcess::new(|_| Mutex::new(false));
    let mut started = STARTED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if *started {
        return Ok(());
    }
    let poll = || loop {
        wait_until_not_empty();
        poll_releases();
        if need_synchronize() {
            finish_releases();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let thread = std::thread::Builder::new().name("interop-release".to_owned()).spawn(poll);
    thread.map_err(|error| {
        Error::new(ErrorKind::Unsupported, "thread", error, "a thread that releases memory")
    })?;
    *started = true;
    Ok(())
}
