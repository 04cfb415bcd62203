//! A process that is forked by a test.
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

/// What a child does not return.
const PANICKED: c_int = 101;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It returned this number.
    Returned(u8),
    /// It panicked.
    Panicked,
    /// It waited for ever, or crashed.
    Killed(c_int),
}

/// A child, in its parent.
#[derive(Debug)]
pub(crate) struct Child(c_int);

impl Child {
    /// Forks; `None` in the child, which has this thread only and some seconds to come to its [`end`].
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: the child runs what is to be tested, and ends.
        let child = unsafe { system::fork() };
        assert!(child >= 0, "no process can be made");
        if child == 0 {
            // SAFETY: no conditions.
            unsafe { system::alarm(20) };
            return None;
        }
        Some(Self(child))
    }

    /// Waits for its end.
    pub(crate) fn ended(self) -> Ended {
        let mut status = 0;
        // SAFETY: the child's number, and a place for its status.
        assert_eq!(unsafe { system::waitpid(self.0, &raw mut status, 0) }, self.0);
        match (status & 0x7f, status >> 8 & 0xff) {
            (0, PANICKED) => Ended::Panicked,
            (0, code) => Ended::Returned(code.try_into().expect("a byte")),
            (signal, _) => Ended::Killed(signal),
        }
    }
}

/// Runs `run`, and ends the process without what a process does at its end.
pub(crate) fn end(run: impl FnOnce() -> u8) -> ! {
    let status = catch_unwind(AssertUnwindSafe(run)).map_or(PANICKED, c_int::from);
    // SAFETY: no conditions.
    unsafe { system::_exit(status) }
}

/// Ends the process with what a thread does at its end, and nothing more: a sanitizer would look for what is leaked on purpose.
pub(crate) fn end_the_thread() -> ! {
    extern "C" fn nothing_more() {
        // SAFETY: no conditions.
        unsafe { system::_exit(0) }
    }
    // SAFETY: a function that may be called at the end of the program: first, as the last that is registered.
    assert_eq!(unsafe { system::atexit(nothing_more) }, 0);
    std::process::exit(0)
}

/// Runs `run` in a process that is forked here. What it owns is dropped in the parent.
pub(crate) fn in_a_child(run: impl FnOnce() -> u8) -> Ended {
    match Child::new() {
        Some(child) => child.ended(),
        None => end(run),
    }
}

/// A child that must come to its end and find everything as it has to be.
#[track_caller]
pub(crate) fn child_does(run: impl FnOnce()) {
    let ended = in_a_child(|| {
        run();
        0
    });
    assert_eq!(ended, Ended::Returned(0), "14 is the alarm: it waits for ever");
}
