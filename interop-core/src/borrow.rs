//! Which host memory Rust code is reading and writing at the moment.
//!
//! Two structs can share memory without the compiler knowing: clones of an `Arc`, two imports of one array. So host
//! access to memory that may be shared is recorded here while it lasts: one writer, or any number of readers. Access that
//! does not go with it is refused. What other libraries do with the memory is not seen.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};

struct Held {
    range: Range<usize>,
    writes: bool,
    ticket: u64,
    #[cfg(any(feature = "python", test))]
    thread: usize,
}

struct Table {
    held: Vec<Held>,
    next: u64,
}

/// The table, and those that may come in its place.
struct Tables {
    all: [Mutex<Table>; 8],
    /// Which of them is the table.
    at: AtomicUsize,
}

static TABLES: Tables = Tables::new();

impl Tables {
    const fn new() -> Self {
        let all = [const { Mutex::new(Table { held: Vec::new(), next: 0 }) }; 8];
        Self { all, at: AtomicUsize::new(0) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // It changes in a process that has one thread. Nothing in here panics halfway.
        self.all[self.at.load(Ordering::Relaxed)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As the function of this name.
    #[cfg(any(feature = "python", test))]
    fn forget_other_threads(&self) {
        let at = self.at.load(Ordering::Relaxed);
        if let Ok(mut table) = self.all[at].try_lock() {
            table.held.retain(|held| held.thread == this_thread());
        } else if at + 1 < self.all.len() {
            // One of them had the lock, and never gives it back. What this thread was at is forgotten with the rest; when
            // that ends, its ticket may be nobody else's.
            self.at.store(at + 1, Ordering::Relaxed);
            self.table().next = (at as u64 + 1) << 56;
        }
    }
}

fn table() -> MutexGuard<'static, Table> {
    TABLES.table()
}

/// A number that no other thread has at the time, for less than the standard library's costs.
#[cfg(any(feature = "python", test))]
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| core::ptr::from_ref(place).addr())
}

/// Forgets what other threads read and write, in a process that was forked and has none of them.
#[cfg(feature = "python")]
pub(crate) fn forget_other_threads() {
    TABLES.forget_other_threads();
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
        table.held.push(Held {
            range,
            writes,
            ticket,
            #[cfg(any(feature = "python", test))]
            thread: this_thread(),
        });
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
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

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

    fn held(table: &mut Table) -> u64 {
        let ticket = table.next;
        table.next += 1;
        table.held.push(Held { range: 0..8, writes: true, ticket, thread: this_thread() });
        ticket
    }

    #[test]
    fn what_other_threads_were_at_is_forgotten() {
        static TABLES: Tables = Tables::new();
        let own = held(&mut TABLES.table());
        thread::spawn(|| held(&mut TABLES.table())).join().unwrap();
        TABLES.forget_other_threads();
        assert_eq!(TABLES.table().held.iter().map(|held| held.ticket).collect::<Vec<_>>(), [own]);
    }

    /// In a process that was forked the thread is not there that would give it back.
    #[test]
    fn a_lock_that_is_never_given_back_keeps_nobody_waiting() {
        static TABLES: Tables = Tables::new();
        let before = held(&mut TABLES.table());
        core::mem::forget(TABLES.table());
        let (done, answer) = mpsc::channel();
        thread::spawn(move || {
            TABLES.forget_other_threads();
            let mut table = TABLES.table();
            done.send((table.held.len(), held(&mut table)))
        });
        let (left, after) = answer.recv_timeout(Duration::from_secs(20)).expect("it waits for ever");
        assert_eq!((left, after > before), (0, true));
    }
}
