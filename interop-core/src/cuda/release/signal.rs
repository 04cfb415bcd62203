//! How a thread waits for a change of what a lock guards, at no cost for those who change it while nobody does.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};

/// Wakes threads that wait. It counts them, because even a wake-up without any costs a system call.
pub(crate) struct Signal {
    waiting: AtomicUsize,
    condition: Condvar,
}

impl Signal {
    pub(crate) const fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), condition: Condvar::new() }
    }

    /// Called with the lock held.
    pub(crate) fn notify(&self) {
        if self.is_awaited() {
            self.condition.notify_all();
        }
    }

    /// Whether a thread waits, or is about to look whether it has to. Who changes something without the lock asks this
    /// afterwards, and then takes the lock to notify: the thread has either seen the change or is counted here.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Waits while something holds of what the lock guards.
    pub(crate) fn wait_while<T>(&self, guarded: MutexGuard<'_, T>, holds: impl Fn(&T) -> bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let woken = self.condition.wait_while(guarded, |guarded| holds(guarded));
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
