//! Runs code while the thread is detached from the interpreter.
#![expect(unsafe_code, reason = "runs closures that are not `Send` without the lock")]

use pyo3::prelude::*;

use crate::cuda;
use crate::driver::release::hold::DeferRecording;
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
struct AssertSend<'a>(&'a mut dyn FnMut());

// SAFETY: the value is never sent to another thread, and the closures of this file use no Python objects.
unsafe impl Send for AssertSend<'_> {}

impl AssertSend<'_> {
    fn run(self) {
        (self.0)();
    }
}

/// Runs a closure for the storage of an argument, [`detached`] from the interpreter.
pub(crate) fn take_detached(take: &mut dyn FnMut()) {
    // SAFETY: an import runs on a thread that is attached.
    let py = unsafe { Python::assume_attached() };
    // A storage holds no references to Python objects, because its `take` may be called on any thread.
    let take = AssertSend(take);
    detached(py, move || take.run());
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
        // The closure is a call of the driver. No release records its event inside that call.
        let free = AssertSend(free);
        py.detach(move || free.run());
    });
}
