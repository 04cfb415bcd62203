//! Records of how imported arrays were used: on the caller's stream alone, or in any other way.
//!
//! An array that is on the stream of its library, and was used there alone, can be released as that library releases its
//! own arrays: at once. Any other use needs an event. Only evidence counts. So a record starts clean, and everything that
//! gives away the address makes it used. Pool memory of this crate has such records too (`cuda/block.rs`).

use core::cell::Cell;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::process::fork::{this_thread, thread_number};

/// The record of one imported array, or of one block of pool memory. A copy refers to the same record, and to none once
/// that is finished.
///
/// The records lie in a table of fixed size. Memory that finds no free place there has no record, and counts as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UseRecord(NonZeroU64);

/// A place of the table. From the lowest bit, `state` has [`USED`], the number of launch scopes that have the array, and
/// the generation, which is odd while the place is taken.
struct Place {
    state: AtomicU64,
    /// The thread that imported the array.
    thread: AtomicUsize,
}

/// The number of places for imports, which live for a call.
const PLACES: usize = 1024;

/// The number of places for blocks of pool memory, which follow those of imports.
pub(crate) const BLOCKS: usize = 8192;

/// How many places a thread tries before an import does without a record.
const TRIES: usize = 8;

static TABLE: [Place; PLACES + BLOCKS] =
    [const { Place { state: AtomicU64::new(0), thread: AtomicUsize::new(0) } }; PLACES + BLOCKS];

/// The places for blocks that are free again, and the number of those that were taken at any time.
static FREE_BLOCKS: Mutex<(Vec<u16>, u16)> = Mutex::new((Vec::new(), 0));

const USED: u64 = 1;
const SCOPE: u64 = 2;
const GENERATION: u64 = 1 << 16;
const INDEX: u64 = GENERATION - 1;
const SCOPES: u64 = INDEX & !USED;

// The place that this thread used last. Threads start far apart.
thread_local!(static LAST: Cell<usize> = Cell::new(thread_number() * 61 % PLACES));

impl UseRecord {
    /// Starts the record of an array that this thread imports. `None` if no place is free.
    pub(crate) fn start() -> Option<Self> {
        let last = LAST.try_with(Cell::get).ok()?;
        (0..TRIES).find_map(|step| Self::take((last + step) % PLACES))
    }

    /// Starts the record of a block of pool memory. `None` if no place is free.
    pub(crate) fn start_block() -> Option<Self> {
        let mut free = FREE_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let (again, taken) = &mut *free;
        let block =
            again.pop().or_else(|| (usize::from(*taken) < BLOCKS).then(|| (*taken, *taken += 1).0))?;
        Self::take(PLACES + usize::from(block))
    }

    /// The number of the block whose record this is. `None` for the record of an import.
    pub(crate) fn block(self) -> Option<usize> {
        ((self.0.get() & INDEX) as usize).checked_sub(PLACES)
    }

    /// Finishes the record of a block. Returns whether the memory was used in launch scopes alone.
    pub(crate) fn finish_block(self) -> bool {
        let Some(Ok(block)) = self.block().map(u16::try_from) else { return false };
        let is_clean = self.close();
        FREE_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).0.push(block);
        is_clean
    }

    fn take(index: usize) -> Option<Self> {
        let Place { state, thread } = &TABLE[index];
        let free = state.load(Ordering::Relaxed);
        if free & GENERATION != 0 {
            return None;
        }
        // A late note of a use may have marked a free place.
        let taken = (free & !INDEX) + GENERATION;
        state.compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed).ok()?;
        thread.store(this_thread(), Ordering::Relaxed);
        if index < PLACES {
            LAST.set(index);
        }
        NonZeroU64::new(taken | index as u64).map(Self)
    }

    fn place(self) -> &'static Place {
        let index = (self.0.get() & INDEX) as usize;
        &TABLE[index]
    }

    /// Whether only this crate has used the memory, and all of its launch scopes have ended.
    pub(crate) fn is_clean(self) -> bool {
        let state = self.place().state.load(Ordering::Acquire);
        self.is_of(state) && state & INDEX == 0
    }

    fn is_of(self, state: u64) -> bool {
        state & !INDEX == self.0.get() & !INDEX
    }

    /// Notes that the memory may be used in a way that this crate does not see, if it has a record.
    #[inline]
    pub(crate) fn note(record: Option<Self>) {
        if let Some(record) = record {
            record.note_used();
        }
    }

    /// Notes that the array may be used beyond the caller's stream.
    #[inline]
    pub(crate) fn note_used(self) {
        let state = &self.place().state;
        if self.is_of(state.load(Ordering::Relaxed)) {
            // If the record ended meanwhile, another array counts as used, which does no harm.
            state.fetch_or(USED, Ordering::Relaxed);
        }
    }

    /// Notes that a launch scope has the array. A scope that is forgotten leaves it used. So do more scopes than can be
    /// counted.
    pub(crate) fn enter_scope(self) {
        self.change(|state| if state & SCOPES == SCOPES { state | USED } else { state + SCOPE });
    }

    /// Notes that a launch scope has ordered its work with the caller's stream.
    pub(crate) fn leave_scope(self) {
        self.change(|state| if state & SCOPES == 0 { state } else { state - SCOPE });
    }

    fn change(self, to: impl Fn(u64) -> u64) {
        let own = |state| self.is_of(state).then(|| to(state));
        // Fails if the record is finished.
        let _ = self.place().state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, own);
    }

    /// Finishes the record of an import. Returns whether the array was used on the caller's stream alone, and this is the
    /// thread that imported it. The record of a block goes on: its memory is not the import's.
    pub(crate) fn finish(self) -> bool {
        if self.block().is_some() {
            return false;
        }
        let is_here = self.place().thread.load(Ordering::Relaxed) == this_thread();
        self.close() && is_here
    }

    /// Finishes the record. Returns whether it is clean.
    fn close(self) -> bool {
        let state = &self.place().state;
        let last = state.load(Ordering::Acquire);
        if !self.is_of(last) {
            return false;
        }
        state.store((last & !INDEX).wrapping_add(GENERATION), Ordering::Release);
        last & INDEX == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_use_on_the_callers_stream_is_clean() {
        let start = || UseRecord::start().unwrap();
        assert!(start().finish());
        let used = start();
        used.note_used();
        assert!(!used.finish());
        let launched = start();
        launched.enter_scope();
        launched.leave_scope();
        assert!(launched.finish());
        let forgotten = start();
        forgotten.enter_scope();
        assert!(!forgotten.finish(), "a scope that does not end");
        let moved = start();
        assert!(!std::thread::spawn(move || moved.finish()).join().unwrap(), "dropped on another thread");
    }

    #[test]
    fn a_copy_of_a_finished_record_changes_no_other() {
        let old = UseRecord::start().unwrap();
        assert!(old.finish());
        let new = UseRecord::start().unwrap();
        assert_ne!(old, new);
        old.note_used();
        old.enter_scope();
        assert!(!old.finish());
        assert!(new.finish());
    }

    #[test]
    fn a_late_note_does_not_lose_the_place() {
        let place = || UseRecord::start().unwrap();
        let first = place();
        let index = first.0.get() & INDEX;
        assert!(first.finish());
        TABLE[index as usize].state.fetch_or(USED, Ordering::Relaxed);
        let again = UseRecord::take(index as usize).unwrap();
        assert_eq!(again.0.get() & INDEX, index);
        assert!(again.finish());
    }

    #[test]
    fn scopes_beyond_the_count_leave_the_array_used() {
        let many = UseRecord::start().unwrap();
        let other = UseRecord::start().unwrap();
        for _ in 0..=SCOPES / SCOPE {
            many.enter_scope();
        }
        for _ in 0..SCOPES {
            many.leave_scope();
        }
        assert!(!many.finish());
        assert!(other.finish());
    }

    #[test]
    fn the_table_has_an_end() {
        let records: Vec<_> = core::iter::from_fn(UseRecord::start).take(PLACES + 1).collect();
        assert!(records.len() <= PLACES);
        assert!(records.into_iter().all(UseRecord::finish));
    }
}
