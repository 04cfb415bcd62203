//! A signal to waiting threads.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};

/// Wakes waiting threads. It counts them, because a wake-up costs a system call even if no thread waits.
pub(crate) struct Signal {
    waiting: AtomicUsize,
    condition: Condvar,
}

impl Signal {
    pub(crate) const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), condition: Condvar::new() }
    }

    /// Wakes the waiting threads. The caller holds the lock.
    pub(crate) fn notify(&self) {
        if self.is_awaited() {
            self.condition.notify_all();
        }
    }

    /// Returns whether a thread waits, or is about to check whether it has to.
    ///
    /// A thread that changes something without the lock calls this afterwards. If the result is true, it takes the lock
    /// and notifies. So a waiting thread either has seen the change or is counted here.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Waits while `holds` is true for the guarded value.
    pub(crate) fn wait_while<T>(&self, guarded: MutexGuard<'_, T>, holds: impl Fn(&T) -> bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let woken = self.condition.wait_while(guarded, |guarded| holds(guarded));
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
