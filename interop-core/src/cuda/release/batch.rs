//! Batches: releases that wait without a driver call, to share an event.
//!
//! Threads are spread over several lists, so that they rarely wait for each other.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::cuda::release::scope::{ErasedOwner, ReleaseScope};

/// The number of releases in one list at which they get their event.
pub(crate) const MOST_OWNERS: usize = 64;

/// The number of bytes of the arrays in one list at which they get their event: sixteen arrays of nearly a mebibyte, as the
/// sizes are rounded down.
const MOST_BYTES: usize = 15 << 20;

/// One list. The alignment keeps it in cache lines to which no thread with another list writes.
#[repr(align(128))]
struct Slot {
    owners: Mutex<Vec<ErasedOwner>>,
    /// The number of owners, and of the bytes that they keep alive. Written with the list locked.
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// The lists of all threads.
pub(crate) struct Batches {
    slots: [Slot; SLOTS],
    /// Set when an owner is added, cleared when the lists are emptied.
    occupied: AtomicBool,
}

const SLOTS: usize = 16;

/// The time at which the lists were last emptied, in ticks. 0 means that the next import or export empties them.
static EMPTIED: AtomicU64 = AtomicU64::new(0);

/// How long releases may wait to share an event, in ticks.
static SHARED_FOR: AtomicU64 = AtomicU64::new(ABOUT_A_MILLISECOND);

/// Sets how long releases may wait to share an event, so that tests do not depend on the clock.
#[cfg(feature = "counters")]
pub fn share_events_for(ticks: u64) {
    SHARED_FOR.store(ticks, Ordering::Relaxed);
}

/// Returns whether the lists were last emptied so long ago that their owners should wait no longer.
pub(crate) fn is_due() -> bool {
    let emptied = EMPTIED.load(Ordering::Relaxed);
    emptied == 0 || ticks().wrapping_sub(emptied) >= SHARED_FOR.load(Ordering::Relaxed)
}

/// Makes the next import or export empty the lists.
pub(crate) fn make_due() {
    EMPTIED.store(0, Ordering::Relaxed);
}

thread_local! {
    /// The index of this thread's list.
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
        self.count.load(Ordering::SeqCst) >= MOST_OWNERS || self.bytes.load(Ordering::Relaxed) >= MOST_BYTES
    }

    /// Passes all owners to `receive`. `count` increases before the count of the list decreases, so a reader of
    /// [`Batches::len`] and then of `count` misses no owner.
    fn take(&self, count: &AtomicUsize, receive: impl FnMut(ErasedOwner)) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut owners = self.owners();
        count.fetch_add(owners.len(), Ordering::SeqCst);
        owners.drain(..).for_each(receive);
        self.count.store(0, Ordering::SeqCst);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

impl Batches {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Slot::new() }; SLOTS], occupied: AtomicBool::new(false) }
    }

    fn own(&self) -> &Slot {
        // A thread that is ending has no index of its own and uses the first list.
        &self.slots[OWN.try_with(|own| *own).unwrap_or(0)]
    }

    /// Adds an owner to the list of this thread. Returns whether the list is full.
    pub(crate) fn push(&self, owner: ErasedOwner, scope: ReleaseScope) -> bool {
        let slot = self.own();
        let mut owners = slot.owners();
        owners.push(owner.after(Some(scope)));
        // No other thread writes, because the list is locked.
        slot.count.store(owners.len(), Ordering::SeqCst);
        slot.bytes.store(slot.bytes.load(Ordering::Relaxed) + scope.bytes(), Ordering::Relaxed);
        // Set after the count, because `take` clears it before it reads the counts.
        if !self.occupied.load(Ordering::SeqCst) {
            self.occupied.store(true, Ordering::SeqCst);
        }
        slot.is_full()
    }

    /// Returns the number of owners in the lists.
    pub(crate) fn len(&self) -> usize {
        self.slots.iter().map(|slot| slot.count.load(Ordering::SeqCst)).sum()
    }

    /// Returns whether the list of this thread is full.
    pub(crate) fn own_is_full(&self) -> bool {
        self.own().is_full()
    }

    /// Returns whether the lists may have an owner.
    #[inline]
    pub(crate) fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Relaxed)
    }

    /// Passes the owners in all lists to `receive`, and counts them in `count`.
    pub(crate) fn take_all(&self, count: &AtomicUsize, mut receive: impl FnMut(ErasedOwner)) {
        self.occupied.store(false, Ordering::SeqCst);
        // The lists may be empty already, because threads empty their own.
        if self.len() != 0 {
            EMPTIED.store(ticks().max(1), Ordering::Relaxed);
        }
        self.slots.iter().for_each(|slot| slot.take(count, &mut receive));
    }

    /// As [`take_all`](Self::take_all), for the list of this thread. Memory then goes back to the thread that used it.
    pub(crate) fn take_own(&self, count: &AtomicUsize, receive: impl FnMut(ErasedOwner)) {
        self.own().take(count, receive);
    }
}

/// The ticks of about a millisecond: half of one at 4 GHz, two in nanoseconds.
pub(crate) const ABOUT_A_MILLISECOND: u64 = 2_000_000;

/// Returns the time since an arbitrary start, in units of a nanosecond or less.
///
/// The clock of the standard library costs as much as a driver call, and is a system call on some virtual machines.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has a time-stamp counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the time since an arbitrary start, in nanoseconds.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

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
