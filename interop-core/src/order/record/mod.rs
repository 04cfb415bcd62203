//! The record of who uses memory now: the host, or kernels on a stream.
//!
//! Two structs can share memory without the compiler's knowledge, for example two imports of one array. So each access to memory
//! that may be shared is recorded here while it lasts: one writer, or any number of readers. A conflicting access returns an
//! error. Two accesses on one stream do not conflict, because the stream orders them. What lasts longer than a call of this crate,
//! such as an export, asks only. Accesses by other libraries are not recorded.
//!
//! All extension modules with this crate in one interpreter share one record, that of the first module.

pub(crate) mod access;
pub(crate) mod accesses;
pub(crate) mod few;
pub(crate) mod many;

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

use crate::error::{Error, ErrorKind, Result};
use crate::order::record::access::{Access, Ticket};
use crate::order::record::accesses::{AccessTable, OPEN_ON_DEVICES};
use crate::process::fork::PerProcess;

/// The record of this module.
struct Record {
    table: PerProcess<AccessTable>,
    /// The table of another module, if that one is shared by all.
    shared: OnceLock<&'static SharedTable>,
}

static RECORD: Record = Record { table: PerProcess::new(AccessTable::after_fork), shared: OnceLock::new() };

/// The answer of a table: the access that has begun, or the one with which it conflicts.
#[derive(Clone, Copy)]
#[repr(C)]
struct Answer {
    is_refused: u32,
    ticket: Ticket,
    access: Access,
}

impl Answer {
    fn into_result(self) -> Result<Ticket, Access> {
        if self.is_refused == 0 { Ok(self.ticket) } else { Err(self.access) }
    }

    fn new(access: Access, result: Result<Ticket, Access>) -> Self {
        match result {
            Ok(ticket) => Self { is_refused: 0, ticket, access },
            Err(access) => Self { is_refused: 1, ticket: Ticket::NONE, access },
        }
    }
}

/// The functions of a table, called by other extension modules in the process, which may have other versions of this crate. The
/// first module that is initialized in Python provides the table of all. A change of the layout, or of the meaning of a field,
/// needs a new name (`python/capsule.rs`).
#[repr(C)]
pub(crate) struct SharedTable {
    begin: extern "C" fn(access: Access) -> Answer,
    end: extern "C" fn(ticket: Ticket),
    forget: extern "C" fn(start: usize, end: usize),
    /// Compares an access with those by devices, and records nothing.
    ask: extern "C" fn(access: Access) -> Answer,
    /// The number of accesses by devices.
    open_on_devices: &'static AtomicUsize,
}

/// The table of this module.
pub(crate) static OWN: SharedTable = SharedTable {
    begin: begin_here,
    end: end_here,
    forget: forget_here,
    ask: ask_here,
    open_on_devices: &OPEN_ON_DEVICES,
};

extern "C" fn begin_here(access: Access) -> Answer {
    Answer::new(access, RECORD.table.get().begin(&access, || None))
}

extern "C" fn end_here(ticket: Ticket) {
    RECORD.table.get().end(&ticket);
}

extern "C" fn forget_here(start: usize, end: usize) {
    RECORD.table.get().forget(&(start..end));
}

extern "C" fn ask_here(access: Access) -> Answer {
    Answer::new(access, RECORD.table.get().ask(&access).map(|()| Ticket::NONE))
}

/// The tables that have accesses of this module. Those that began before [`record_in`] are still in its own.
fn tables() -> impl Iterator<Item = &'static SharedTable> {
    [Some(&OWN), RECORD.shared.get().copied()].into_iter().flatten()
}

/// Forgets accesses to freed memory. Views and scopes borrow their memory, so only leaked ones can be left. The next allocation
/// at the address must not conflict with them.
pub(crate) fn forget(range: Range<usize>) {
    tables().for_each(|table| (table.forget)(range.start, range.end));
}

/// Records all later accesses in this table.
#[cfg(feature = "python")]
pub(crate) fn record_in(shared: &'static SharedTable) {
    if !core::ptr::eq(shared, &raw const OWN) {
        // No thread is between reading `shared` and recording an access.
        RECORD.table.get().between_accesses(|| {
            let _ = RECORD.shared.set(shared);
        });
    }
}

/// Refuses an access that conflicts with one by a device, and records nothing. While no device has any, `access` is not called.
///
/// # Errors
///
/// [`ErrorKind::AlreadyBorrowed`].
#[inline]
pub(crate) fn ask(access: impl FnOnce() -> Option<Access>) -> Result<()> {
    let is_open = |table: &SharedTable| table.open_on_devices.load(Ordering::SeqCst) != 0;
    if is_open(&OWN) || RECORD.shared.get().is_some_and(|shared| is_open(shared)) {
        return access().map_or(Ok(()), ask_tables);
    }
    Ok(())
}

#[cold]
fn ask_tables(access: Access) -> Result<()> {
    tables().try_for_each(|table| {
        (table.ask)(access).into_result().map(drop).map_err(|other| already_borrowed(&other))
    })
}

/// An access in the record, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenAccess {
    ticket: Ticket,
    /// Whether it is in the table of another module.
    is_elsewhere: bool,
}

impl OpenAccess {
    /// Records an access.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`] if a conflicting access exists.
    pub(crate) fn new(access: &Access) -> Result<Self> {
        let mut is_elsewhere = false;
        let elsewhere = || {
            let shared = RECORD.shared.get()?;
            is_elsewhere = true;
            Some((shared.begin)(*access).into_result())
        };
        match RECORD.table.get().begin(access, elsewhere) {
            Ok(ticket) => Ok(Self { ticket, is_elsewhere }),
            Err(other) => Err(already_borrowed(&other)),
        }
    }
}

impl Drop for OpenAccess {
    #[inline]
    fn drop(&mut self) {
        match RECORD.shared.get() {
            Some(shared) if self.is_elsewhere => (shared.end)(self.ticket),
            _ => RECORD.table.get().end(&self.ticket),
        }
    }
}

#[cold]
fn already_borrowed(other: &Access) -> Error {
    conflict(&other.elements.range(), other.writes != 0)
}

/// The error for an access beside a conflicting one.
#[cold]
pub(crate) fn conflict(range: &Range<usize>, writes: bool) -> Error {
    let access = if writes { "a writer" } else { "a reader" };
    let found = format!("{access} of {:#x} to {:#x}", range.start, range.end);
    let allowed = "one writer, or any number of readers, of the same memory";
    let python_hint = "pass a copy if one call gets the same array twice";
    let error = Error::new(ErrorKind::AlreadyBorrowed, "data", found, allowed);
    error
        .with_rust_hint("drop the other view first, or copy one of two arrays that share memory")
        .with_python_hint(python_hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::elements::Elements;
    #[cfg(all(unix, not(miri)))]
    use crate::process::fork::child::in_a_child;

    fn open(range: Range<usize>, writes: bool) -> Result<OpenAccess> {
        OpenAccess::new(&Access::by_host(Elements::contiguous(range), writes))
    }

    #[test]
    fn one_writer_or_many_readers() {
        // No allocator returns these addresses.
        let reader = open(8..16, false).unwrap();
        let conflicting = open(12..20, false).unwrap();
        assert_eq!(open(0..9, true).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        let writer = open(0..8, true).unwrap();
        assert_eq!(open(7..8, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        drop((reader, conflicting, writer));
        drop(open(0..20, true).unwrap());
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_needs_no_lock_of_the_parent_and_ends_no_access_of_another() {
        let mut before = Some(open(40..48, true).unwrap());
        let mut child = false;
        RECORD.table.get().between_accesses(|| {
            child = in_a_child(|| {
                let after_fork = open(40..48, true).unwrap();
                // The access from before the fork is not in the child's table, so its end must not end another one.
                drop(before.take());
                assert_eq!(open(40..48, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
                drop(after_fork);
                drop(open(40..48, true).unwrap());
            });
        });
        assert!(child);
    }
}
