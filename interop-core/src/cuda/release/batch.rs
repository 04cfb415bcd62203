//! Where releases that are decided in batches are left: in as many places as threads are likely to release at a time, so that
//! none waits for another. One list for all was waited for longer than everything else that a release does.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::scope::ReleaseScope;

/// A place, apart from the others in memory: what one thread writes would be another's to load again.
#[repr(align(128))]
struct Slot(Mutex<Vec<(ReleaseScope, ErasedOwner)>>);

/// What was left in all places.
pub(crate) struct Batches {
    slots: [Slot; SLOTS],
    /// How many owners are in all places. Changed with the place locked.
    len: AtomicUsize,
}

const SLOTS: usize = 16;

thread_local! {
    /// The place of this thread.
    static OWN: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS
    };
}

impl Slot {
    fn owners(&self) -> MutexGuard<'_, Vec<(ReleaseScope, ErasedOwner)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batches {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Slot(Mutex::new(Vec::new())) }; SLOTS], len: AtomicUsize::new(0) }
    }

    /// Leaves an owner, and says how many are left with it: each number comes to one thread.
    pub(crate) fn push(&self, scope: ReleaseScope, owner: ErasedOwner) -> usize {
        // A thread at its end has no place of its own.
        let own = OWN.try_with(|own| *own).unwrap_or(0);
        let mut owners = self.slots[own].owners();
        owners.push((scope, owner));
        self.len.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How many owners are left.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Hands over the owners that are left.
    pub(crate) fn take(&self, mut receive: impl FnMut(ReleaseScope, ErasedOwner)) {
        if self.len() == 0 {
            return;
        }
        for slot in &self.slots {
            let mut owners = slot.owners();
            self.len.fetch_sub(owners.len(), Ordering::SeqCst);
            owners.drain(..).for_each(|(scope, owner)| receive(scope, owner));
        }
    }
}
