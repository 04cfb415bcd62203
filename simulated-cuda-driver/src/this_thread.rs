//! What this thread does: which driver function it has called, and whether code of the program runs inside it.

use std::cell::Cell;

thread_local! {
    /// Whether this thread is running a kernel or host function of the program, which must not call the driver.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    /// The driver function that this thread has called.
    static CALLING: Cell<&'static str> = const { Cell::new("the test") };
    /// How many guards on this thread forbid it to wait for a device.
    static WAITS_FORBIDDEN: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is running a kernel or host function of the program.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// The driver function that this thread has called.
pub(crate) fn calling() -> &'static str {
    CALLING.get()
}

/// The driver function that this thread has called, if the thread must not wait.
pub(crate) fn host_waits() -> Option<&'static str> {
    (WAITS_FORBIDDEN.get() != 0).then(calling)
}

/// Forbids this thread to wait for a device, or undoes one such call.
pub(crate) fn forbid_waits(forbid: bool) {
    let count = WAITS_FORBIDDEN.get();
    WAITS_FORBIDDEN.set(if forbid { count + 1 } else { count.saturating_sub(1) });
}

/// Runs a kernel or host function of the program.
pub(crate) fn as_callback(callback: impl FnOnce()) {
    IN_CALLBACK.set(true);
    callback();
    IN_CALLBACK.set(false);
}

/// Runs the body of a driver function.
pub(crate) fn in_function<R>(name: &'static str, body: impl FnOnce() -> R) -> R {
    let before = CALLING.replace(name);
    let result = body();
    CALLING.set(before);
    result
}
