//! Work without the interpreter's lock.
#![expect(unsafe_code, reason = "runs closures that are not `Send` without the lock")]

use pyo3::prelude::*;

use crate::cuda;
use crate::cuda::release::held::DeferRecording;
use crate::python::interpreter::is_attached;
use crate::python::py_owner::release_deferred_refs;

/// Runs what may wait for a device without the interpreter's lock: other threads go on meanwhile, and the work that is
/// waited for may hold a function of the host that needs the lock.
///
/// Libraries cannot be asked meanwhile whether they capture a graph, so releases are decided afterwards.
pub(crate) fn detached<R: Send>(py: Python<'_>, run: impl FnOnce() -> R + Send) -> R {
    let later = DeferRecording::new();
    let done = py.detach(run);
    drop(later);
    cuda::poll_in_passing();
    release_deferred_refs(py);
    done
}

/// A closure that goes nowhere, for `detach`, which asks for `Send` to keep Python's references out of it.
pub(crate) struct AssertSend<'a>(&'a mut dyn FnMut());

// SAFETY: it is not sent; what `detach` asks for is promised to `new`.
unsafe impl Send for AssertSend<'_> {}

impl<'a> AssertSend<'a> {
    /// # Safety
    ///
    /// The closure uses nothing of Python's, and does not leave the thread.
    pub(crate) unsafe fn new(run: &'a mut dyn FnMut()) -> Self {
        Self(run)
    }

    pub(crate) fn run(self) {
        (self.0)();
    }
}

/// From here on memory of ours is freed, and the work before an import waited for, without the interpreter's lock, for the
/// reason of [`detached`].
pub(crate) fn free_detached() {
    cuda::set_blocking_hook(|free| {
        if !is_attached() {
            return free();
        }
        // SAFETY: the thread is attached, as was just seen.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: a call of the driver, made here.
        let free = unsafe { AssertSend::new(free) };
        // No release is decided inside of that call.
        py.detach(move || free.run());
    });
}
