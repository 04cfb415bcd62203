//! Owners that count their drops.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

/// A counter of releases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    /// Adds one.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The current count.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// An owner with a payload that counts its drop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted<T = ()>(pub(crate) Count, pub(crate) T);

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A byte with a larger alignment than any number.
#[derive(Clone, Debug, Default)]
#[repr(align(128))]
pub(crate) struct Aligned(pub(crate) u8);

/// An owner whose drop counts and then panics.
#[derive(Debug)]
pub(crate) struct Panicking(pub(crate) Count);

impl Drop for Panicking {
    fn drop(&mut self) {
        self.0.add();
        // Without a message, so that no hook prints one. The payload has size zero, so forgetting it leaks nothing.
        panic::resume_unwind(Box::new(()));
    }
}

/// An owner whose drop panics with a payload whose drop panics too.
#[derive(Debug)]
pub(crate) struct PanickingTwice(pub(crate) Count);

struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic::resume_unwind(Box::new(()));
    }
}

impl Drop for PanickingTwice {
    fn drop(&mut self) {
        self.0.add();
        panic::resume_unwind(Box::new(Payload));
    }
}

/// Runs `work` on another thread and returns its result and the thread's id.
pub(crate) fn elsewhere<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> (R, ThreadId) {
    let thread = thread::spawn(work);
    let id = thread.thread().id();
    (thread.join().expect("the thread ends well"), id)
}
