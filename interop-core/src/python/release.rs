//! Python objects that own exported memory, released on whichever thread the consumer lets go.
#![expect(unsafe_code, reason = "gives up references past PyO3, which would defer them")]

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

use super::capsule::{Taken, sparing_exceptions};
use super::import::Protocol;
use super::interpreter::is_attached;
use crate::cuda::{self, DeferDecisions, Trust};
use crate::dlpack::{Abi, ManagedTensor, release};
use crate::error::Refused;
use crate::fork::PerProcess;
use crate::import::Import;

/// A reference to a Python object that any thread may drop.
///
/// A deleter may run without the interpreter's lock, even while another thread holds it and waits for this one. So the
/// drop never waits: where the thread is not attached the reference is parked, and released at the next call into this
/// room. What is parked when the interpreter ends is leaked.
pub(super) struct PyOwner(ManuallyDrop<Py<PyAny>>);

/// Those that were parked.
struct Parked {
    objects: Mutex<Vec<Py<PyAny>>>,
    /// How many of them are not released yet, readable without the lock.
    waiting: AtomicUsize,
}

static PARKED: PerProcess<Parked> = PerProcess::new(Parked::after);

impl Parked {
    /// A process that was forked has what waits from its parent, unless a thread was at the list: that is leaked there.
    fn after(parents: Option<&'static Self>) -> Self {
        let objects = parents.and_then(|parents| parents.objects.try_lock().ok());
        let objects = objects.map_or_else(Vec::new, |mut objects| core::mem::take(&mut *objects));
        Self { waiting: AtomicUsize::new(objects.len()), objects: Mutex::new(objects) }
    }

    fn objects(&self) -> MutexGuard<'_, Vec<Py<PyAny>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn park(object: Py<PyAny>) {
    let parked = PARKED.get();
    parked.waiting.fetch_add(1, Ordering::AcqRel);
    parked.objects().push(object);
}

impl PyOwner {
    pub(super) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }
}

impl Drop for PyOwner {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, here.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        if is_attached() {
            // SAFETY: the thread is attached, and the reference is ours.
            unsafe { ffi::Py_DECREF(object.into_ptr()) };
            return;
        }
        park(object);
    }
}

/// The number of Python objects that wait to be released on a thread that is attached to the interpreter. What waits for
/// work on a GPU is counted by [`cuda::pending_releases`](crate::cuda::pending_releases).
#[inline]
#[must_use]
pub fn pending_releases() -> usize {
    PARKED.get().waiting.load(Ordering::Acquire)
}

/// Releases the Python objects that other threads could not. Every import, every export and every method of an array class
/// does so.
#[inline]
pub fn drain_releases(py: Python<'_>) {
    if pending_releases() != 0 {
        drain_parked(py);
    }
}

#[cold]
fn drain_parked(py: Python<'_>) {
    let parked = PARKED.get();
    let objects = core::mem::take(&mut *parked.objects());
    for object in objects {
        parked.waiting.fetch_sub(1, Ordering::AcqRel);
        // It may run any code, also code that comes back here.
        object.drop_ref(py);
    }
}

/// Runs what may wait for a device without the interpreter's lock: other threads go on meanwhile, and the work that is
/// waited for may hold a function of the host that needs the lock.
///
/// Libraries cannot be asked meanwhile whether they capture a graph, so releases are decided afterwards.
pub(super) fn without_lock<R: Send>(py: Python<'_>, run: impl FnOnce() -> R + Send) -> R {
    let later = DeferDecisions::new();
    let done = py.detach(run);
    drop(later);
    cuda::poll_releases();
    drain_releases(py);
    done
}

/// A closure that goes nowhere, for `detach`, which asks for `Send` to keep Python's references out of it.
pub(super) struct Here<'a>(&'a mut dyn FnMut());

// SAFETY: it is not sent; what `detach` asks for is promised to `new`.
unsafe impl Send for Here<'_> {}

impl<'a> Here<'a> {
    /// # Safety
    ///
    /// The closure uses nothing of Python's, and does not leave the thread.
    pub(super) unsafe fn new(run: &'a mut dyn FnMut()) -> Self {
        Self(run)
    }

    pub(super) fn run(self) {
        (self.0)();
    }
}

/// From here on memory of ours is freed, and the work before an import waited for, without the interpreter's lock, for the
/// reason of [`without_lock`].
pub(super) fn free_without_lock() {
    cuda::free_inside(|free| {
        if !is_attached() {
            return free();
        }
        // SAFETY: the thread is attached, as was just seen.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: a call of the driver, made here.
        let free = unsafe { Here::new(free) };
        // No release is decided inside of that call.
        py.detach(move || free.run());
    });
}

/// Where an array from Python arrives, and how far it is believed.
pub(super) struct Destination<'a> {
    pub(super) import: &'a mut Import,
    pub(super) trust: Trust,
}

impl Destination<'_> {
    /// An import of the tensor of a capsule, and the protocol that its form says.
    pub(super) fn receive_taken(&mut self, taken: Taken) -> crate::Result<Protocol> {
        match taken {
            Taken::Versioned(tensor) => self.receive(tensor).map(|()| Protocol::DlpackVersioned),
            Taken::Legacy(tensor) => self.receive(tensor).map(|()| Protocol::Dlpack),
        }
    }

    /// An import of a tensor that came from Python, which is released if it is refused.
    pub(super) fn receive<A: Abi>(&mut self, tensor: ManagedTensor<A>) -> crate::Result<()> {
        // SAFETY: `release_foreign::<A>` releases a struct of the form `A`, on any thread.
        let received = unsafe { self.import.receive(tensor, release_foreign::<A>, self.trust) };
        received.map_err(|Refused { value, error }| {
            // SAFETY: a struct of the form `A`, which the refusal gave back and nobody else releases.
            unsafe { release_foreign::<A>(value.into_place()) };
            error
        })
    }
}

/// Releases a foreign tensor. Its deleter can be Python code, which an exception that is on its way must survive.
///
/// # Safety
///
/// As [`release`].
pub(super) unsafe fn release_foreign<A: Abi>(tensor: NonNull<()>) {
    // SAFETY: as the caller promises.
    let let_go = || unsafe { release::<A>(tensor) };
    if is_attached() {
        // SAFETY: the thread is attached.
        unsafe { sparing_exceptions(let_go) };
    } else {
        let_go();
    }
}
