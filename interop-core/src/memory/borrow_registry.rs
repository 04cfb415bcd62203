//! Which host memory Rust code is reading and writing at the moment.
//!
//! Two structs can share memory without the compiler knowing: clones of an `Arc`, two imports of one array. So host
//! access to memory that may be shared is recorded here while it lasts: one writer, or any number of readers. Access that
//! does not go with it is refused. What other libraries do with the memory is not seen; what other modules of this crate's do in
//! the same interpreter is, because they share one table.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::{PerProcess, forked_by, generation, this_thread};

#[derive(Clone)]
struct Borrowed {
    range: Range<usize>,
    exclusive: bool,
    ticket: u64,
    thread: usize,
}

struct Table {
    borrowed: Vec<Borrowed>,
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
        let borrowed = parents.map_or_else(Vec::new, |parents| parents.borrowed.clone());
        Self {
            borrowed: borrowed.into_iter().filter(|borrowed| borrowed.thread == forked_by()).collect(),
            next,
        }
    }
}

fn table() -> MutexGuard<'static, Table> {
    // Nothing in here panics halfway.
    TABLE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// The access that does not go with this.
    fn other(&self, range: &Range<usize>, exclusive: bool) -> Option<Begun> {
        let meets =
            |borrowed: &&Borrowed| borrowed.range.start < range.end && range.start < borrowed.range.end;
        let borrowed = self.borrowed.iter().filter(meets).find(|borrowed| exclusive || borrowed.exclusive)?;
        let Range { start, end } = borrowed.range;
        Some(Begun { refused: 1, exclusive: borrowed.exclusive.into(), ticket: 0, start, end })
    }

    fn begin(&mut self, range: Range<usize>, exclusive: bool) -> Begun {
        let ticket = self.next;
        let begun =
            Begun { refused: 0, exclusive: exclusive.into(), ticket, start: range.start, end: range.end };
        self.next += 1;
        self.borrowed.push(Borrowed { range, exclusive, ticket, thread: this_thread() });
        ANY.store(true, Ordering::Relaxed);
        begun
    }

    fn end(&mut self, ticket: u64) {
        if let Some(at) = self.borrowed.iter().position(|borrowed| borrowed.ticket == ticket) {
            self.borrowed.swap_remove(at);
            ANY.store(!self.borrowed.is_empty(), Ordering::Relaxed);
        }
    }
}

/// Whether there is any access in the table, readable without its lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// What became of access that was to begin: refused because of access to these addresses, or begun.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Begun {
    refused: u32,
    exclusive: u32,
    ticket: u64,
    start: usize,
    end: usize,
}

/// The table of a module, as others of the process use it that have this crate too, in whatever version: the first of them to
/// meet Python has the table of all. It stays as it is; another one would have another name.
#[repr(C)]
pub(crate) struct SharedTable {
    begin: extern "C" fn(start: usize, end: usize, exclusive: u32) -> Begun,
    end: extern "C" fn(ticket: u64),
    forget: extern "C" fn(start: usize, end: usize),
}

/// The table of this module.
pub(crate) static OWN: SharedTable = SharedTable { begin: begin_here, end: end_here, forget: forget_here };

/// The table of the module that has it for all, if that is another.
static ELSEWHERE: OnceLock<&'static SharedTable> = OnceLock::new();

extern "C" fn begin_here(start: usize, end: usize, exclusive: u32) -> Begun {
    let (mut table, exclusive) = (table(), exclusive != 0);
    table.other(&(start..end), exclusive).unwrap_or_else(|| table.begin(start..end, exclusive))
}

extern "C" fn end_here(ticket: u64) {
    table().end(ticket);
}

extern "C" fn forget_here(start: usize, end: usize) {
    if ANY.load(Ordering::Relaxed) {
        table().borrowed.retain(|borrowed| borrowed.range.end <= start || end <= borrowed.range.start);
    }
}

/// Forgets access to memory that is freed. Views borrow what keeps the memory, so what is left are views that were leaked: the
/// next allocation at the address is not theirs.
pub(crate) fn forget(range: Range<usize>) {
    forget_here(range.start, range.end);
    if let Some(shared) = ELSEWHERE.get() {
        (shared.forget)(range.start, range.end);
    }
}

/// From now on access is recorded in this table.
#[cfg(feature = "python")]
pub(crate) fn record_in(shared: &'static SharedTable) {
    if !core::ptr::eq(shared, &raw const OWN) {
        // Whoever has the lock has looked where to record.
        let _table = table();
        let _ = ELSEWHERE.set(shared);
    }
}

/// Access to host memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct Borrow {
    ticket: u64,
    end: extern "C" fn(u64),
}

impl Borrow {
    /// Records access to memory that others may have, from one address to the other; to any other there is nothing to record.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn of(shared: Option<(usize, usize)>, exclusive: bool) -> Result<Option<Self>> {
        shared.map(|(start, end)| Self::new(start..end, exclusive)).transpose()
    }

    /// Records access to these addresses.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`] when there is other access that does not go with it.
    fn new(range: Range<usize>, exclusive: bool) -> Result<Self> {
        let mut table = table();
        // What began here before this module met Python is here still.
        let (begun, end) = match (table.other(&range, exclusive), ELSEWHERE.get()) {
            (Some(other), _) => (other, OWN.end),
            (None, Some(shared)) => ((shared.begin)(range.start, range.end, exclusive.into()), shared.end),
            (None, None) => (table.begin(range, exclusive), OWN.end),
        };
        if begun.refused != 0 {
            return Err(busy(begun));
        }
        Ok(Self { ticket: begun.ticket, end })
    }
}

#[cold]
fn busy(other: Begun) -> Error {
    let what = if other.exclusive != 0 { "a writer" } else { "a reader" };
    let found = format!("{what} of {:#x} to {:#x}", other.start, other.end);
    let allowed = "one writer, or any number of readers, of the same memory";
    let remedy = "a copy is memory of its own, if one call was given the same array twice";
    let error = Error::new(ErrorKind::AlreadyBorrowed, "data", found, allowed);
    error.with_rust_hint("drop the other view first").with_python_hint(remedy)
}

impl Drop for Borrow {
    fn drop(&mut self) {
        (self.end)(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(unix, not(miri)))]
    use std::thread;

    use super::*;
    #[cfg(all(unix, not(miri)))]
    use crate::process::fork::child::in_a_child;

    #[test]
    fn one_writer_or_many_readers() {
        // Addresses that no allocator hands out.
        let reader = Borrow::new(8..16, false).unwrap();
        let other = Borrow::new(12..20, false).unwrap();
        assert_eq!(Borrow::new(0..9, true).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        let writer = Borrow::new(0..8, true).unwrap();
        assert_eq!(Borrow::new(7..8, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        drop((reader, other, writer));
        drop(Borrow::new(0..20, true).unwrap());
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_knows_what_its_own_thread_is_at() {
        static PARENTS: Mutex<Table> = Mutex::new(Table { borrowed: Vec::new(), next: 0 });
        let hold = || {
            let thread = this_thread();
            PARENTS.lock().unwrap().borrowed.push(Borrowed {
                range: 0..8,
                exclusive: true,
                ticket: 7,
                thread,
            });
            thread
        };
        // From now on forks are noticed.
        generation();
        let own = hold();
        thread::scope(|scope| assert_ne!(scope.spawn(hold).join().unwrap(), own));
        // Whichever thread of the child is the first to ask.
        let ask = || {
            Table::after(Some(&PARENTS)).borrowed.iter().map(|borrowed| borrowed.thread).collect::<Vec<_>>()
        };
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
            assert_eq!(Borrow::new(40..48, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
            drop(after);
            drop(Borrow::new(40..48, true).unwrap());
        });
        drop(at_work);
        assert!(child);
    }
}
