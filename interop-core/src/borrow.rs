//! Which host memory Rust code is reading and writing at the moment.
//!
//! Two structs can share memory without the compiler knowing: clones of an `Arc`, two imports of one array. So host
//! access to memory that may be shared is recorded here while it lasts: one writer, or any number of readers. Access that
//! does not go with it is refused. What other libraries do with the memory is not seen.

use core::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};

struct Held {
    range: Range<usize>,
    writes: bool,
    ticket: u64,
    #[cfg(feature = "python")]
    thread: usize,
}

struct Table {
    held: Vec<Held>,
    next: u64,
}

static TABLE: Mutex<Table> = Mutex::new(Table { held: Vec::new(), next: 0 });

fn table() -> MutexGuard<'static, Table> {
    // Nothing in here panics halfway.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that no other thread has at the time, for less than the standard library's costs.
#[cfg(feature = "python")]
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| core::ptr::from_ref(place).addr())
}

/// Forgets what other threads read and write, in a process that was forked and has none of them.
#[cfg(feature = "python")]
pub(crate) fn forget_other_threads() {
    // One that had the lock itself never gives it back.
    if let Ok(mut table) = TABLE.try_lock() {
        table.held.retain(|held| held.thread == this_thread());
    }
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
            #[cfg(feature = "python")]
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
}
