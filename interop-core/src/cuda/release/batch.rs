//! Releases that wait for a shared event.
//!
//! Each thread adds to a list of its own, as far as there are lists, so that threads do not wait for each other.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::release::erased::ErasedOwner;
use crate::cuda::release::scope::ReleaseScope;
use crate::cuda::release::ticks::{ABOUT_A_MILLISECOND, ticks};

/// How many releases may wait in one list before they get their event.
pub(crate) const MOST_OWNERS: usize = 64;

/// How many bytes the arrays in one list may have before they get their event.
const MOST_BYTES: usize = 16 << 20;

/// One list, apart from the others in memory: no two threads write to one cache line.
#[repr(align(128))]
struct Slot {
    owners: Mutex<Vec<ErasedOwner>>,
    /// The number of owners and of the bytes that they keep. Written with the list locked.
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// The lists.
pub(crate) struct Batches {
    slots: [Slot; SLOTS],
    /// Set when an owner is left in an empty list, cleared when the lists are emptied.
    occupied: AtomicBool,
    /// When the lists were last emptied, in ticks. 0: they are emptied at the next import or export.
    emptied: AtomicU64,
}

const SLOTS: usize = 16;

/// How long releases may wait for others to share the event with, in ticks.
static SHARED_FOR: AtomicU64 = AtomicU64::new(ABOUT_A_MILLISECOND);

/// Sets how long releases may wait for others to share the event with: tests do not depend on the clock.
#[cfg(feature = "counters")]
pub fn share_events_for(ticks: u64) {
    SHARED_FOR.store(ticks, Ordering::Relaxed);
}

thread_local! {
    /// The place of this thread.
    static OWN: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS
    };
}

impl Slot {
    const fn new() -> Self {
        Self { owners: Mutex::new(Vec::new()), count: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    fn owners(&self) -> MutexGuard<'_, Vec<ErasedOwner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self) -> bool {
        self.count.load(Ordering::SeqCst) >= MOST_OWNERS || self.bytes.load(Ordering::Relaxed) > MOST_BYTES
    }
}

impl Batches {
    pub(crate) const fn new() -> Self {
        Self {
            slots: [const { Slot::new() }; SLOTS],
            occupied: AtomicBool::new(false),
            emptied: AtomicU64::new(0),
        }
    }

    /// Leaves an owner in the list of this thread, and says whether the list is full.
    pub(crate) fn push(&self, owner: ErasedOwner, scope: ReleaseScope) -> bool {
        // A thread at its end has no place of its own.
        let own = OWN.try_with(|own| *own).unwrap_or(0);
        let slot = &self.slots[own];
        let mut owners = slot.owners();
        owners.push(owner.after(Some(scope)));
        // With the lock: nobody else writes.
        slot.count.store(owners.len(), Ordering::SeqCst);
        slot.bytes.store(slot.bytes.load(Ordering::Relaxed) + scope.small_bytes(), Ordering::Relaxed);
        // After the count: whoever clears it looks at the counts afterwards.
        if !self.occupied.load(Ordering::SeqCst) {
            self.occupied.store(true, Ordering::SeqCst);
        }
        slot.is_full()
    }

    /// How many owners are left.
    pub(crate) fn len(&self) -> usize {
        self.slots.iter().map(|slot| slot.count.load(Ordering::SeqCst)).sum()
    }

    /// Whether a list is full.
    pub(crate) fn is_full(&self) -> bool {
        self.slots.iter().any(Slot::is_full)
    }

    /// Whether an owner may be left.
    #[inline]
    pub(crate) fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Relaxed)
    }

    /// Whether the lists were not emptied for so long that what is left is not to wait any longer.
    pub(crate) fn is_due(&self) -> bool {
        let emptied = self.emptied.load(Ordering::Relaxed);
        emptied == 0 || ticks().wrapping_sub(emptied) >= SHARED_FOR.load(Ordering::Relaxed)
    }

    /// Has the next import or export empty the lists.
    pub(crate) fn make_due(&self) {
        self.emptied.store(0, Ordering::Relaxed);
    }

    /// Hands over the owners that are left. `count` is told how many of a list come before they are no longer left.
    pub(crate) fn take(&self, count: &AtomicUsize, mut receive: impl FnMut(ErasedOwner)) {
        self.emptied.store(ticks().max(1), Ordering::Relaxed);
        self.occupied.store(false, Ordering::SeqCst);
        for slot in &self.slots {
            if slot.count.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut owners = slot.owners();
            count.fetch_add(owners.len(), Ordering::SeqCst);
            owners.drain(..).for_each(&mut receive);
            slot.count.store(0, Ordering::SeqCst);
            slot.bytes.store(0, Ordering::Relaxed);
        }
    }
}
