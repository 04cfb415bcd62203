//! Child processes that a test forks.
#![expect(unsafe_code, reason = "calls the system")]

use std::ffi::{c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};

mod system {
    use super::{c_int, c_uint};

    unsafe extern "C" {
        pub(super) fn fork() -> c_int;
        pub(super) fn alarm(seconds: c_uint) -> c_uint;
        pub(super) fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
        pub(super) fn _exit(status: c_int) -> !;
        pub(super) fn atexit(run: extern "C" fn()) -> c_int;
    }
}

/// The exit status of a child that panicked. No child returns this number.
const PANICKED: c_int = 101;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The child returned this number.
    Returned(u8),
    /// The child panicked.
    Panicked,
    /// The child hung or crashed.
    Killed(c_int),
}

/// The parent's handle of a child.
#[derive(Debug)]
pub(crate) struct Child(c_int);

impl Child {
    /// Forks the process. Returns `None` in the child, which has only this thread and 20 seconds to reach [`end`].
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: the child runs the code under test and exits.
        let child = unsafe { system::fork() };
        assert!(child >= 0, "no process can be made");
        if child == 0 {
            // SAFETY: the function has no preconditions.
            unsafe { system::alarm(20) };
            return None;
        }
        Some(Self(child))
    }

    /// Waits for the child to end.
    pub(crate) fn ended(self) -> Ended {
        let mut status = 0;
        // SAFETY: the number is that of the child, and the pointer is valid for a write.
        assert_eq!(unsafe { system::waitpid(self.0, &raw mut status, 0) }, self.0);
        match (status & 0x7f, status >> 8 & 0xff) {
            (0, PANICKED) => Ended::Panicked,
            (0, code) => Ended::Returned(code.try_into().expect("a byte")),
            (signal, _) => Ended::Killed(signal),
        }
    }
}

/// Runs `run` and ends the process without the handlers that run at a normal exit.
pub(crate) fn end(run: impl FnOnce() -> u8) -> ! {
    let status = catch_unwind(AssertUnwindSafe(run)).map_or(PANICKED, c_int::from);
    // SAFETY: the function has no preconditions.
    unsafe { system::_exit(status) }
}

/// Ends the process after the thread-local destructors and skips the other exit handlers, because a sanitizer would
/// report the deliberate leaks.
pub(crate) fn end_the_thread() -> ! {
    extern "C" fn nothing_more() {
        // SAFETY: the function has no preconditions.
        unsafe { system::_exit(0) }
    }
    // SAFETY: the function may be called at exit. It is registered last, so it runs first.
    assert_eq!(unsafe { system::atexit(nothing_more) }, 0);
    std::process::exit(0)
}

/// Runs `run` in a forked child. The parent drops what the closure owns.
pub(crate) fn in_a_child(run: impl FnOnce() -> u8) -> Ended {
    match Child::new() {
        Some(child) => child.ended(),
        None => end(run),
    }
}

/// Runs `run` in a child, which must end without a panic.
#[track_caller]
pub(crate) fn child_does(run: impl FnOnce()) {
    let ended = in_a_child(|| {
        run();
        0
    });
    assert_eq!(ended, Ended::Returned(0), "14 is the alarm: it waits for ever");
}
