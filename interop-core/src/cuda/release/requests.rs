//! What a program asks of deferred releases: how many there are, to poll them, and to wait for them.
#![expect(clippy::must_use_candidate, reason = "called for what they do")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::cuda::release::hold::need_synchronize;
use crate::cuda::release::queue::{finish, poll, queued, wait_until_not_empty};
use crate::cuda::release::trusted::{release_otherwise, trusted_releases};
use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::PerProcess;

/// Returns the number of deferred releases.
#[must_use]
pub fn pending_releases() -> usize {
    trusted_releases() + queued()
}

/// Records missing events, releases memory whose work is done, and returns the number of releases that are still
/// deferred.
///
/// Exports, allocations and releases of CUDA memory poll in passing, and so does
/// [`make_stream_wait`](crate::derive::cuda_array::CudaArray::make_stream_wait).
///
/// ```
/// // At a point where the program is idle, so that nothing stays until the next import:
/// let waiting = interop_core::cuda::poll_releases();
/// assert_eq!(waiting, 0);
/// ```
pub fn poll_releases() -> usize {
    release_otherwise();
    poll()
}

/// Waits on the host until every deferred release is done, by this thread or by another.
///
/// Returns the number of releases that are still deferred: those that a guard holds, those deferred during a capture,
/// and those for whose work the driver fails to wait.
///
/// Before the call, release every lock that a deferred release may need, such as the Python interpreter's
/// (`py.detach`): another thread may be waiting for that lock to release something. A call from the drop of an owner
/// that is being released does not wait for other threads, because they may be waiting for that drop.
pub fn finish_releases() -> usize {
    release_otherwise();
    finish()
}

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
