//! The registry of host memory that Rust code is currently reading or writing.
//!
//! Two structs can share memory without the compiler's knowledge, for example two imports of one array. So each host
//! access to memory that may be shared is recorded here while it lasts: one writer, or any number of readers. A
//! conflicting access returns an error. Accesses by other libraries are not recorded. All extension modules with this
//! crate in one interpreter share one registry.

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

static TABLE: PerProcess<Mutex<Table>> = PerProcess::new(|parents| Mutex::new(Table::after_fork(parents)));

impl Table {
    /// The table of a forked child. It keeps the accesses of the forking thread, which continues there, and drops those
    /// of all other threads. If another thread held the lock, the table starts empty.
    fn after_fork(parents: Option<&'static Mutex<Self>>) -> Self {
        // A ticket from before the fork may be returned later, so new tickets must differ from it.
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
    // A panic cannot leave the table half changed.
    TABLE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// An access that conflicts with the given one.
    fn conflicting(&self, range: &Range<usize>, exclusive: bool) -> Option<Begun> {
        let overlaps =
            |borrowed: &&Borrowed| borrowed.range.start < range.end && range.start < borrowed.range.end;
        let borrowed =
            self.borrowed.iter().filter(overlaps).find(|borrowed| exclusive || borrowed.exclusive)?;
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

/// Whether the table has any access. It can be read without the lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// The result of beginning an access: a ticket, or the range of the conflicting access.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Begun {
    refused: u32,
    exclusive: u32,
    ticket: u64,
    start: usize,
    end: usize,
}

/// The functions of a registry, called by other extension modules in the process, which may have other versions of this
/// crate. The first module that is initialized in Python provides the registry of all. The layout is fixed; a changed
/// one needs a new name.
#[repr(C)]
pub(crate) struct SharedTable {
    begin: extern "C" fn(start: usize, end: usize, exclusive: u32) -> Begun,
    end: extern "C" fn(ticket: u64),
    forget: extern "C" fn(start: usize, end: usize),
}

/// The registry of this module.
pub(crate) static OWN: SharedTable = SharedTable { begin: begin_here, end: end_here, forget: forget_here };

/// The registry of another module, if that one is shared by all.
static SHARED: OnceLock<&'static SharedTable> = OnceLock::new();

extern "C" fn begin_here(start: usize, end: usize, exclusive: u32) -> Begun {
    let (mut table, exclusive) = (table(), exclusive != 0);
    table.conflicting(&(start..end), exclusive).unwrap_or_else(|| table.begin(start..end, exclusive))
}

extern "C" fn end_here(ticket: u64) {
    table().end(ticket);
}

extern "C" fn forget_here(start: usize, end: usize) {
    if ANY.load(Ordering::Relaxed) {
        table().borrowed.retain(|borrowed| borrowed.range.end <= start || end <= borrowed.range.start);
    }
}

/// Forgets accesses to freed memory. Views borrow their memory, so only leaked views can be left. The next allocation
/// at the address must not conflict with them.
pub(crate) fn forget(range: Range<usize>) {
    forget_here(range.start, range.end);
    if let Some(shared) = SHARED.get() {
        (shared.forget)(range.start, range.end);
    }
}

/// Records all later accesses in this registry.
#[cfg(feature = "python")]
pub(crate) fn record_in(shared: &'static SharedTable) {
    if !core::ptr::eq(shared, &raw const OWN) {
        // Under the lock no thread is between reading `SHARED` and recording an access.
        let _table = table();
        let _ = SHARED.set(shared);
    }
}

/// An access to host memory, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Borrow {
    ticket: u64,
    end: extern "C" fn(u64),
}

impl Borrow {
    /// Records an access to memory that may be shared. `None` means that nothing needs to be recorded.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn of(shared: Option<(usize, usize)>, exclusive: bool) -> Result<Option<Self>> {
        shared.map(|(start, end)| Self::new(start..end, exclusive)).transpose()
    }

    /// Records an access to these addresses.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`] if a conflicting access exists.
    fn new(range: Range<usize>, exclusive: bool) -> Result<Self> {
        let mut table = table();
        // Accesses that began before `record_in` are still in this module's table.
        let (begun, end) = match (table.conflicting(&range, exclusive), SHARED.get()) {
            (Some(conflicting), _) => (conflicting, OWN.end),
            (None, Some(shared)) => ((shared.begin)(range.start, range.end, exclusive.into()), shared.end),
            (None, None) => (table.begin(range, exclusive), OWN.end),
        };
        if begun.refused != 0 {
            return Err(already_borrowed(begun));
        }
        Ok(Self { ticket: begun.ticket, end })
    }
}

#[cold]
fn already_borrowed(conflicting: Begun) -> Error {
    let access = if conflicting.exclusive != 0 { "a writer" } else { "a reader" };
    let found = format!("{access} of {:#x} to {:#x}", conflicting.start, conflicting.end);
    let allowed = "one writer, or any number of readers, of the same memory";
    let python_hint = "pass a copy if one call gets the same array twice";
    let error = Error::new(ErrorKind::AlreadyBorrowed, "data", found, allowed);
    error
        .with_rust_hint("drop the other view first, or copy one of two arrays that share memory")
        .with_python_hint(python_hint)
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
        // No allocator returns these addresses.
        let reader = Borrow::new(8..16, false).unwrap();
        let conflicting = Borrow::new(12..20, false).unwrap();
        assert_eq!(Borrow::new(0..9, true).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        let writer = Borrow::new(0..8, true).unwrap();
        assert_eq!(Borrow::new(7..8, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        drop((reader, conflicting, writer));
        drop(Borrow::new(0..20, true).unwrap());
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_keeps_the_accesses_of_the_forking_thread() {
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
        // Forks are counted from here on.
        generation();
        let forking_thread = hold();
        thread::scope(|scope| assert_ne!(scope.spawn(hold).join().unwrap(), forking_thread));
        // Any thread of the child may be the first to use the table.
        let ask = || {
            Table::after_fork(Some(&PARENTS))
                .borrowed
                .iter()
                .map(|borrowed| borrowed.thread)
                .collect::<Vec<_>>()
        };
        assert!(in_a_child(|| thread::scope(|scope| assert_eq!(
            scope.spawn(ask).join().unwrap(),
            [forking_thread]
        ))));
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_needs_no_lock_of_the_parent_and_never_reuses_tickets() {
        let mut before = Some(Borrow::new(40..48, true).unwrap());
        let at_work = table();
        let child = in_a_child(|| {
            let after_fork = Borrow::new(40..48, true).unwrap();
            // The access from before the fork is not in the child's table, so its end must not end another one.
            drop(before.take());
            assert_eq!(Borrow::new(40..48, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
            drop(after_fork);
            drop(Borrow::new(40..48, true).unwrap());
        });
        drop(at_work);
        assert!(child);
    }
}
