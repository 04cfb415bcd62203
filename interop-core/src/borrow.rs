//! Which host memory Rust code is reading and writing at the moment.
//!
//! Two structs can share memory without the compiler knowing: clones of an `Arc`, two imports of one array. So host
//! access to memory that may be shared is recorded here while it lasts: one writer, or any number of readers. Access that
//! does not go with it is refused. What other libraries do with the memory is not seen.

use core::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::error::{Error, ErrorKind, Result};
use crate::fork::{PerProcess, forked_by, generation, this_thread};

#[derive(Clone)]
struct Held {
    range: Range<usize>,
    writes: bool,
    ticket: u64,
    thread: usize,
}

struct Table {
    held: Vec<Held>,
    next: u64,
}

static TABLE: PerProcess<Mutex<Table>> = PerProcess::new(|parents| Mutex::new(Table::after(parents)));

impl Table {
    /// The table of a process that was forked: what the thread that forked was at goes on there. That of a thread that had the
    /// lock, with which nothing is known, and of those that are not there is forgotten.
    fn after(parents: Option<&'static Mutex<Self>>) -> Self {
        // A ticket from before may be given back later, and is nobody else's.
        let next = (generation() as u64) << 48;
        let parents = parents.and_then(|parents| match parents.try_lock() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        let held = parents.map_or_else(Vec::new, |parents| parents.held.clone());
        Self { held: held.into_iter().filter(|held| held.thread == forked_by()).collect(), next }
    }
}

fn table() -> MutexGuard<'static, Table> {
    // Nothing in here panics halfway.
    TABLE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Access to host memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Borrow {
    ticket: u64,
}

impl Borrow {
    /// Records access to memory that others may have, from one address to the other; to any other there is nothing to record.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn of(shared: Option<(usize, usize)>, writes: bool) -> Result<Option<Self>> {
        shared.map(|(start, end)| Self::new(start..end, writes)).transpose()
    }

    /// Records access to these addresses.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Busy`] when there is other access that does not go with it.
    fn new(range: Range<usize>, writes: bool) -> Result<Self> {
        let mut table = table();
        let meets = |held: &&Held| held.range.start < range.end && range.start < held.range.end;
        if let Some(other) = table.held.iter().filter(meets).find(|held| writes || held.writes) {
            let what = if other.writes { "a writer" } else { "a reader" };
            let found = format!("{what} of {:#x} to {:#x}", other.range.start, other.range.end);
            let allowed = "one writer, or any number of readers, of the same memory";
            let error = Error::new(ErrorKind::Busy, "data", found, allowed);
            let remedy = "a copy is memory of its own, if one call was given the same array twice";
            return Err(error.with_advice("drop the other view first").with_remedy(remedy));
        }
        let ticket = table.next;
        table.next += 1;
        table.held.push(Held { range, writes, ticket, thread: this_thread() });
        Ok(Self { ticket })
    }
}

impl Drop for Borrow {
    fn drop(&mut self) {
        let mut table = table();
        if let Some(at) = table.held.iter().position(|held| held.ticket == self.ticket) {
            table.held.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(unix, not(miri)))]
    use std::thread;

    use super::*;
    #[cfg(all(unix, not(miri)))]
    use crate::fork::child::in_a_child;

    #[test]
    fn one_writer_or_many_readers() {
        // Addresses that no allocator hands out.
        let reader = Borrow::new(8..16, false).unwrap();
        let other = Borrow::new(12..20, false).unwrap();
        assert_eq!(Borrow::new(0..9, true).unwrap_err().kind(), ErrorKind::Busy);
        let writer = Borrow::new(0..8, true).unwrap();
        assert_eq!(Borrow::new(7..8, false).unwrap_err().kind(), ErrorKind::Busy);
        drop((reader, other, writer));
        drop(Borrow::new(0..20, true).unwrap());
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_knows_what_its_own_thread_is_at() {
        static PARENTS: Mutex<Table> = Mutex::new(Table { held: Vec::new(), next: 0 });
        let hold = || {
            let thread = this_thread();
            PARENTS.lock().unwrap().held.push(Held { range: 0..8, writes: true, ticket: 7, thread });
            thread
        };
        // From now on forks are noticed.
        generation();
        let own = hold();
        thread::scope(|scope| assert_ne!(scope.spawn(hold).join().unwrap(), own));
        // Whichever thread of the child is the first to ask.
        let ask = || Table::after(Some(&PARENTS)).held.iter().map(|held| held.thread).collect::<Vec<_>>();
        assert!(in_a_child(|| thread::scope(|scope| assert_eq!(scope.spawn(ask).join().unwrap(), [own]))));
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_waits_for_no_lock_and_gives_its_tickets_to_nobody_else() {
        let mut before = Some(Borrow::new(40..48, true).unwrap());
        let at_work = table();
        let child = in_a_child(|| {
            let after = Borrow::new(40..48, true).unwrap();
            // What was begun before is not in the child's table, and its end ends nothing there.
            drop(before.take());
            assert_eq!(Borrow::new(40..48, false).unwrap_err().kind(), ErrorKind::Busy);
            drop(after);
            drop(Borrow::new(40..48, true).unwrap());
        });
        drop(at_work);
        assert!(child);
    }
}
