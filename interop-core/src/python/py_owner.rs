//! Python objects that own exported memory, released on whichever thread the consumer lets go.
#![expect(unsafe_code, reason = "gives up references past PyO3, which would defer them")]

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::cuda::buffer::CudaBuffer;
use crate::cuda::release::in_context::enter_scope;
use crate::cuda::release::scope::ReleaseScope;
use crate::memory::host_buffer::HostBuffer;
use crate::process::fork::PerProcess;
use crate::protocols::dlpack::export_owner::ExportOwner;
use crate::python::interpreter::is_attached;

/// A reference to a Python object that any thread may drop.
///
/// A deleter may run without the interpreter's lock, even while another thread holds it and waits for this one. So the
/// drop never waits: where the thread is not attached the reference is parked, and released at the next call into this
/// room. What is parked when the interpreter ends is leaked.
#[derive(Debug)]
pub(crate) struct PyOwner(ManuallyDrop<Py<PyAny>>);

/// Those that were parked.
struct Deferred {
    objects: Mutex<Vec<Py<PyAny>>>,
    /// How many of them are not released yet, readable without the lock.
    waiting: AtomicUsize,
}

static DEFERRED: PerProcess<Deferred> = PerProcess::new(Deferred::after);

impl Deferred {
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

fn defer(object: Py<PyAny>) {
    let deferred = DEFERRED.get();
    deferred.waiting.fetch_add(1, Ordering::AcqRel);
    deferred.objects().push(object);
}

impl PyOwner {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }

    /// Whether the object goes with this reference, on this thread. (In an interpreter without a lock the last two references may
    /// be dropped at once; the object then goes as it does where no export had it.)
    fn is_the_last(&self) -> bool {
        // SAFETY: a live object, and the thread is attached.
        is_attached() && unsafe { ffi::Py_REFCNT(self.0.as_ptr()) } == 1
    }

    /// The object.
    pub(crate) fn object(&self) -> &Py<PyAny> {
        &self.0
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
        defer(object);
    }
}

/// The Python object that an export keeps. Where it is the last reference, the context of the memory is current for its drop: the
/// object may free the memory in whatever context is current.
pub(crate) struct ExportedObject {
    object: ManuallyDrop<Py<PyAny>>,
    scope: Option<ReleaseScope>,
}

impl ExportedObject {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self { object: ManuallyDrop::new(object), scope: None }
    }
}

impl ExportOwner for ExportedObject {
    fn adapt_scope(&mut self, scope: ReleaseScope) -> ReleaseScope {
        self.scope = Some(scope);
        scope.self_reliant()
    }
}

impl Drop for ExportedObject {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, here.
        let object = PyOwner::new(unsafe { ManuallyDrop::take(&mut self.object) });
        let _home = if object.is_the_last() { self.scope.and_then(enter_scope) } else { None };
        drop(object);
    }
}

// The buffers of copies free themselves.
impl ExportOwner for HostBuffer {}

impl ExportOwner for CudaBuffer {
    fn waits_on_drop(&self) -> bool {
        self.is_in_order()
    }
}

/// The number of Python objects that wait to be released on a thread that is attached to the interpreter. What waits for
/// work on a GPU is counted by [`cuda::pending_releases`](crate::cuda::pending_releases).
#[inline]
#[must_use]
pub fn deferred_ref_count() -> usize {
    DEFERRED.get().waiting.load(Ordering::Acquire)
}

/// Releases the Python objects that other threads could not. Every import, every export and every method of an array class
/// does so.
#[inline]
pub fn release_deferred_refs(py: Python<'_>) {
    if deferred_ref_count() != 0 {
        release_deferred(py);
    }
}

#[cold]
fn release_deferred(py: Python<'_>) {
    let deferred = DEFERRED.get();
    let objects = core::mem::take(&mut *deferred.objects());
    for object in objects {
        deferred.waiting.fetch_sub(1, Ordering::AcqRel);
        // It may run any code, also code that comes back here.
        object.drop_ref(py);
    }
}
