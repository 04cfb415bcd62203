//! References to the Python objects that own exported memory. Any thread may drop them.
#![expect(unsafe_code, reason = "gives up references past PyO3, which would defer them")]

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

use crate::cuda::buffer::CudaBuffer;
use crate::driver::release::reach::Handle;
use crate::memory::host_vec::HostBuffer;
use crate::memory::owner::Owner;
use crate::process::fork::PerProcess;
use crate::protocols::dlpack::export::ExportOwner;
use crate::python::interpreter::{is_attached, is_free_threaded};

/// A reference to a Python object that any thread may drop.
///
/// A deleter may run on a thread that is not attached, even while another thread holds the interpreter's lock and waits
/// for this one. So the drop never waits: if the thread is not attached, the reference is deferred, and the next call
/// into this module drops it. References that are still deferred when the interpreter ends are leaked.
#[derive(Debug)]
pub(crate) struct PyRef(ManuallyDrop<Py<PyAny>>);

/// An owned reference that is not dropped yet.
struct Reference(NonNull<()>);

// SAFETY: any thread that is attached may drop a reference.
unsafe impl Send for Reference {}

/// The deferred references.
struct PendingDecrefs {
    objects: Mutex<Vec<Reference>>,
    /// The number of references that are not dropped yet. It can be read without the lock.
    waiting: AtomicUsize,
}

static PENDING: PerProcess<PendingDecrefs> = PerProcess::new(PendingDecrefs::after);

impl PendingDecrefs {
    /// A forked process takes over the deferred references of its parent. They are leaked if a thread of the parent
    /// held the lock.
    fn after(parents: Option<&'static Self>) -> Self {
        let objects = parents.and_then(|parents| parents.objects.try_lock().ok());
        let objects = objects.map_or_else(Vec::new, |mut objects| core::mem::take(&mut *objects));
        Self { waiting: AtomicUsize::new(objects.len()), objects: Mutex::new(objects) }
    }

    fn objects(&self) -> MutexGuard<'_, Vec<Reference>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PyRef {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }

    /// The object.
    pub(crate) fn object(&self) -> &Py<PyAny> {
        &self.0
    }
}

impl Drop for PyRef {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, here.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        let Some(object) = NonNull::new(object.into_ptr()) else { return };
        // SAFETY: this is an owned reference to an object.
        unsafe { release(object.cast()) };
    }
}

/// Drops a reference to a Python object, now if the thread is attached.
///
/// # Safety
///
/// The pointer is that of an object, and a reference to it is owned and given up.
unsafe fn release(object: NonNull<()>) {
    if is_attached() {
        // SAFETY: the thread is attached, and the reference is owned, as the caller promises.
        unsafe { ffi::Py_DECREF(object.as_ptr().cast()) };
    } else {
        let deferred = PENDING.get();
        deferred.waiting.fetch_add(1, Ordering::AcqRel);
        deferred.objects().push(Reference(object));
    }
}

/// Returns an owner of memory that a Python object keeps alive. As `Owner::new(PyRef::new(object))`, without a box.
pub(crate) fn owner_of(object: &Bound<'_, PyAny>) -> Owner {
    let Some(reference) = NonNull::new(object.clone().into_ptr()) else { return Owner::none() };
    // SAFETY: `release` gets this owned reference once, and may be called on any thread.
    unsafe { Owner::from_raw(reference.cast(), release) }
}

/// The object may free memory in the context that is current.
impl Handle for PyRef {
    type Last = Self;

    fn last(self) -> Option<Self> {
        // Without the interpreter's lock, another thread may drop the other references after they were counted.
        // SAFETY: the object is alive, and the thread is attached.
        let is_last = || is_free_threaded() || unsafe { ffi::Py_REFCNT(self.0.as_ptr()) } == 1;
        (is_attached() && is_last()).then_some(self)
    }
}

// The buffers of copies free their memory themselves.
impl ExportOwner for HostBuffer {
    const OWNS_THE_ARRAY: bool = true;
}

impl ExportOwner for CudaBuffer {
    const OWNS_THE_ARRAY: bool = true;

    fn note_consumed(&self) {
        if let Some(uses) = &self.uses {
            uses.note_unknown();
        }
    }
}

/// Returns the number of Python objects whose release is deferred until a thread that is attached to the interpreter
/// drops them.
///
/// [`cuda::pending_releases`](crate::cuda::pending_releases) counts the releases that wait for work on a GPU.
#[inline]
#[must_use]
pub fn deferred_ref_count() -> usize {
    PENDING.get().waiting.load(Ordering::Acquire)
}

/// Drops the Python objects whose release other threads deferred.
///
/// Every import, every export and every method of an array class calls this.
#[inline]
pub fn release_deferred_refs(py: Python<'_>) {
    if deferred_ref_count() != 0 {
        release_deferred(py);
    }
}

#[cold]
fn release_deferred(_: Python<'_>) {
    let deferred = PENDING.get();
    let objects = core::mem::take(&mut *deferred.objects());
    for object in objects {
        deferred.waiting.fetch_sub(1, Ordering::AcqRel);
        // The drop may run any code, including code that calls this function.
        // SAFETY: the thread is attached, and this is the reference that was deferred.
        unsafe { ffi::Py_DECREF(object.0.as_ptr().cast()) };
    }
}
