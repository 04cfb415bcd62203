//! Runs code while the thread is detached from the interpreter.
#![expect(unsafe_code, reason = "runs closures that are not `Send` without the lock")]

use pyo3::prelude::*;

use crate::cuda;
use crate::cuda::release::hold::DeferRecording;
use crate::python::interpreter::is_attached;
use crate::python::py_ref::release_deferred_refs;

/// Runs a closure that may wait for a device while the thread is detached from the interpreter.
///
/// Other Python threads run meanwhile. The device work may include a host function that needs the interpreter's lock.
///
/// A detached thread cannot ask libraries whether they capture a graph. So releases are deferred and polled afterwards.
pub(crate) fn detached<R: Send>(py: Python<'_>, run: impl FnOnce() -> R + Send) -> R {
    let later = DeferRecording::new();
    let done = py.detach(run);
    drop(later);
    cuda::poll_in_passing();
    release_deferred_refs(py);
    done
}

/// A closure that stays on its thread, for `detach`. `detach` requires `Send` to keep references to Python objects out.
pub(crate) struct AssertSend<'a>(&'a mut dyn FnMut());

// SAFETY: the value is never sent to another thread. The caller of `new` guarantees what `detach` needs.
unsafe impl Send for AssertSend<'_> {}

impl<'a> AssertSend<'a> {
    /// # Safety
    ///
    /// The closure uses no Python objects and does not leave the thread.
    pub(crate) unsafe fn new(run: &'a mut dyn FnMut()) -> Self {
        Self(run)
    }

    pub(crate) fn run(self) {
        (self.0)();
    }
}

/// Makes this crate free its memory, and wait for work before an import, while the thread is detached. The reason is
/// that of [`detached`].
pub(crate) fn free_detached() {
    cuda::set_blocking_hook(|free| {
        if !is_attached() {
            return free();
        }
        // SAFETY: the check above found the thread attached.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: the closure is a call of the driver, and it runs on this thread.
        let free = unsafe { AssertSend::new(free) };
        // No release records its event inside that call.
        py.detach(move || free.run());
    });
}
