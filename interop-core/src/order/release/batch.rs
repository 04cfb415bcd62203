//! Batches: releases that wait without a driver call, to share an event.
//!
//! Threads are spread over several lists, so that they rarely wait for each other.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::driver::reach::Reach;
use crate::order::release::owner::Owner;
use crate::process::fork::thread_number;

/// The number of releases in one list at which they get their event.
pub(crate) const MOST_OWNERS: usize = 64;

/// The number of bytes of the arrays in one list at which they get their event: sixteen arrays of nearly a mebibyte, as the
/// sizes are rounded down.
const MOST_BYTES: usize = 15 << 20;

/// The number of lists.
const LISTS: usize = 16;

/// How long releases may wait to share an event, in nanoseconds.
const SHARED_FOR: u64 = 1_000_000;

/// One list. The alignment keeps it in cache lines to which no thread with another list writes.
#[repr(align(128))]
#[derive(Default)]
struct OwnerList(Mutex<Owners>);

/// Owners, and the number of bytes that they keep alive.
#[derive(Default)]
struct Owners {
    list: Vec<Owner>,
    bytes: usize,
}

/// The lists of all threads.
pub(crate) struct Batches {
    lists: [OwnerList; LISTS],
    /// Set when an owner is added, cleared when the lists are emptied.
    is_occupied: AtomicBool,
    since: Instant,
    /// The time at which the lists were last emptied, in nanoseconds. 0 means that the next import or export empties them.
    emptied: AtomicU64,
    /// How long releases may wait to share an event.
    shared_for: AtomicU64,
}

impl OwnerList {
    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes all owners to `receive`. Returns whether there were any.
    fn take(&self, receive: impl FnMut(Owner)) -> bool {
        let mut owners = self.lock();
        let is_occupied = !owners.list.is_empty();
        owners.list.drain(..).for_each(receive);
        owners.bytes = 0;
        is_occupied
    }
}

impl Owners {
    fn is_full(&self) -> bool {
        self.list.len() >= MOST_OWNERS || self.bytes >= MOST_BYTES
    }
}

impl Batches {
    pub(crate) fn new() -> Self {
        Self {
            lists: Default::default(),
            is_occupied: AtomicBool::new(false),
            since: Instant::now(),
            emptied: AtomicU64::new(0),
            shared_for: AtomicU64::new(SHARED_FOR),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn own(&self) -> &OwnerList {
        &self.lists[thread_number() % LISTS]
    }

    /// Adds an owner to the list of this thread. Returns whether the list is full.
    pub(crate) fn push(&self, owner: Owner) -> bool {
        let mut owners = self.own().lock();
        owners.bytes += owner.reach().map_or(0, Reach::bytes);
        owners.list.push(owner);
        // Set with the list locked, because `take_all` clears it before it locks the lists.
        if !self.is_occupied.load(Ordering::SeqCst) {
            self.is_occupied.store(true, Ordering::SeqCst);
        }
        owners.is_full()
    }

    /// Returns whether the list of this thread is full.
    pub(crate) fn own_is_full(&self) -> bool {
        self.own().lock().is_full()
    }

    /// Returns whether the lists may have an owner, and were last emptied so long ago that it should wait no longer.
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        self.is_occupied.load(Ordering::Relaxed) && {
            let emptied = self.emptied.load(Ordering::Relaxed);
            emptied == 0 || self.now().saturating_sub(emptied) >= self.shared_for.load(Ordering::Relaxed)
        }
    }

    /// Makes the next import or export empty the lists.
    pub(crate) fn make_due(&self) {
        self.emptied.store(0, Ordering::Relaxed);
    }

    /// Sets how long releases may wait to share an event, in nanoseconds.
    #[cfg(feature = "counters")]
    pub(crate) fn share_for(&self, nanoseconds: u64) {
        self.shared_for.store(nanoseconds, Ordering::Relaxed);
    }

    /// Passes the owners in all lists to `receive`.
    pub(crate) fn take_all(&self, mut receive: impl FnMut(Owner)) {
        self.is_occupied.store(false, Ordering::SeqCst);
        // The lists may be empty already, because threads empty their own.
        let taken = self.lists.iter().filter(|list| list.take(&mut receive)).count();
        if taken != 0 {
            self.emptied.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// As [`take_all`](Self::take_all), for the list of this thread. Memory then goes back to the thread that used it.
    pub(crate) fn take_own(&self, receive: impl FnMut(Owner)) {
        self.own().take(receive);
    }
}
