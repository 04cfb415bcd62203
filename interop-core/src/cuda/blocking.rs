//! Driver calls that may block: run without the locks of the embedding program, such as Python's.

use std::sync::OnceLock;

/// Runs a closure that may wait for a device.
static HOOK: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// Runs what waits for the work of a device, as the driver does before it frees: without a lock that this work may need.
pub(crate) fn run_blocking(run: impl FnOnce()) {
    let Some(wait) = HOOK.get() else { return run() };
    let mut run = Some(run);
    wait(&mut || run.take().map_or((), |run| run()));
}

/// Lets `wait` run everything that may wait for a device, such as the freeing of memory: it first gives up whatever lock the
/// work on the device may need.
#[cfg(any(feature = "python", feature = "counters"))]
pub fn set_blocking_hook(wait: fn(&mut dyn FnMut())) {
    // The first one stays.
    let _ = HOOK.set(wait);
}
