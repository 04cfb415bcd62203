//! Owners that are counted when they are dropped.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

/// Counts how often something was released.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    /// One more.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// How often.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// An owner of a size, which counts its drop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted<T = ()>(pub(crate) Count, pub(crate) T);

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A byte that is aligned to more than any number.
#[derive(Clone, Debug, Default)]
#[repr(align(128))]
pub(crate) struct Aligned(pub(crate) u8);

/// An owner whose drop panics after it was counted.
#[derive(Debug)]
pub(crate) struct Panicking(pub(crate) Count);

impl Drop for Panicking {
    fn drop(&mut self) {
        self.0.add();
        // Without a message, so that no hook prints one. The value has no size: nothing leaks when it is forgotten.
        panic::resume_unwind(Box::new(()));
    }
}

/// An owner whose drop panics with a value whose drop panics too.
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

/// Runs `work` on a thread of its own, whose id is returned with the result.
pub(crate) fn elsewhere<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> (R, ThreadId) {
    let thread = thread::spawn(work);
    let id = thread.thread().id();
    (thread.join().expect("the thread ends well"), id)
}
