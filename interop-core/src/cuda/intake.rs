//! Where releases that are decided in batches are left: in as many places as threads are likely to release at a time, so that
//! none waits for another. One list for all was waited for longer than everything else that a release does.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::release::Fence;
use crate::owner::Owner;

/// A place, apart from the others in memory: what one thread writes would be another's to load again.
#[repr(align(128))]
struct Place(Mutex<Vec<(Fence, Owner)>>);

/// What was left in all places.
pub(super) struct Intake {
    places: [Place; PLACES],
    /// How many owners are in all places. Changed with the place locked.
    left: AtomicUsize,
}

const PLACES: usize = 16;

thread_local! {
    /// The place of this thread.
    static OWN: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % PLACES
    };
}

impl Place {
    fn owners(&self) -> MutexGuard<'_, Vec<(Fence, Owner)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intake {
    pub(super) const fn new() -> Self {
        Self { places: [const { Place(Mutex::new(Vec::new())) }; PLACES], left: AtomicUsize::new(0) }
    }

    /// Leaves an owner, and says how many are left with it: each number comes to one thread.
    pub(super) fn leave(&self, fence: Fence, owner: Owner) -> usize {
        // A thread at its end has no place of its own.
        let own = OWN.try_with(|own| *own).unwrap_or(0);
        let mut owners = self.places[own].owners();
        owners.push((fence, owner));
        self.left.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// How many owners are left.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// Hands over the owners that are left.
    pub(super) fn take(&self, mut receive: impl FnMut(Fence, Owner)) {
        if self.left() == 0 {
            return;
        }
        for place in &self.places {
            let mut owners = place.owners();
            self.left.fetch_sub(owners.len(), Ordering::SeqCst);
            owners.drain(..).for_each(|(fence, owner)| receive(fence, owner));
        }
    }
}
