//! The end of a program that did not read its reports.

#![expect(unsafe_code, reason = "the end of the process is a callback of C")]

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::Once;

use crate::queue::Work;
use crate::report::Report;
use crate::state::try_lock;

/// Has unread reports printed at the end of the process, unless `SIMULATED_CUDA_REPORTS` is `off`.
pub(crate) fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        if std::env::var("SIMULATED_CUDA_REPORTS").as_deref() != Ok("off") {
            let process = ptr::without_provenance_mut(std::process::id() as usize);
            // SAFETY: the function is part of this library, which is never unloaded (see `build.rs`), and takes any argument.
            unsafe { on_exit(end_of_process, process) };
        }
    });
}

unsafe extern "C" {
    /// Has glibc call a function with the exit status and this argument when the process ends by `exit` or a return of
    /// `main`. The function that was registered first runs last.
    fn on_exit(run: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Prints the reports that nobody has read. If there are any, a process that ends well ends with status 1.
///
/// `process` is the number of the process that registered this function. A forked child has inherited its reports.
extern "C" fn end_of_process(status: c_int, process: *mut c_void) {
    if process.addr() != std::process::id() as usize {
        return;
    }
    // Another thread may hold the lock for ever: it has been stopped, or it waits for this one.
    let Some(mut sim) = try_lock() else { return };
    // A host function of the program may need what the program has already destroyed, and a number may never come.
    let has_host_functions =
        !sim.queue.select(|operation| matches!(operation.work, Work::Host(_))).is_empty();
    if !has_host_functions && !sim.waits_for_numbers() {
        sim.run_everything();
    }
    sim.others.close_clocks();
    let reports = sim.reports.unread();
    if reports.is_empty() {
        return;
    }
    let mut text = format!("simulated CUDA driver: mistakes of this program: {}\n", reports.len());
    for Report { mistake, text: one } in reports {
        // Text grows without an error.
        let _ = writeln!(text, "{mistake:?}: {one}");
    }
    text.push_str("simulated CUDA driver: set SIMULATED_CUDA_REPORTS=off to ignore them\n");
    // Nothing can be done about a standard error that is closed.
    let _ = io::stderr().write_all(text.as_bytes());
    if status == 0 {
        // SAFETY: a null pointer selects all streams of C.
        unsafe { libc::fflush(ptr::null_mut()) };
        // SAFETY: ends the process, which is ending.
        unsafe { libc::_exit(1) };
    }
}
