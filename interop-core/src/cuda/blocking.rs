//! Driver calls that may block: run without the locks of the embedding program, such as Python's.

use std::sync::OnceLock;

/// The hook that runs closures which may wait for a device.
static HOOK: OnceLock<fn(&mut dyn FnMut())> = OnceLock::new();

/// Runs a closure that may wait for the work of a device, as freeing memory does. The hook gives up the locks that this
/// work may need.
pub(crate) fn run_blocking(run: impl FnOnce()) {
    let Some(wait) = HOOK.get() else { return run() };
    let mut run = Some(run);
    wait(&mut || run.take().map_or((), |run| run()));
}

/// Sets the function that runs everything that may wait for a device, such as freeing memory. `wait` first gives up
/// every lock that the work of the device may need.
#[cfg(any(feature = "python", feature = "counters"))]
pub fn set_blocking_hook(wait: fn(&mut dyn FnMut())) {
    // The first hook stays.
    let _ = HOOK.set(wait);
}
