//! The registry of host memory that Rust code is currently reading or writing.
//!
//! Two structs can share memory without the compiler's knowledge, for example two imports of one array. So each host
//! access to memory that may be shared is recorded here while it lasts: one writer, or any number of readers. A
//! conflicting access returns an error. Accesses by other libraries are not recorded. All extension modules with this
//! crate in one interpreter share one registry.
//!
//! The accesses are in maps, in the order of their addresses. Pieces of the address space share the locks of the maps, so
//! that threads with memory of their own rarely wait for each other: allocators give each thread such pieces.

use core::array;
use core::cell::Cell;
use core::ops::Range;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::{PerProcess, forked_by, generation, this_thread};

/// The bytes of an array: elements of `item` bytes, at distances that are multiples of `step` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Elements {
    start: usize,
    end: usize,
    item: usize,
    step: usize,
}

impl Elements {
    /// Elements without gaps are one of the length of the range.
    pub(crate) fn contiguous(range: Range<usize>) -> Self {
        Self { start: range.start, end: range.end, item: range.len(), step: 0 }
    }

    /// Elements of `item` bytes in a range, with these strides in bytes.
    pub(crate) fn strided(range: Range<usize>, item: usize, strides: impl Iterator<Item = usize>) -> Self {
        Self { item, step: strides.fold(0, gcd), ..Self::contiguous(range) }
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Whether two arrays have a byte in common. Columns of one array, and rows in turns, have none.
    pub(crate) fn overlap(&self, other: &Self) -> bool {
        if self.end <= other.start || other.end <= self.start {
            return false;
        }
        let step = gcd(self.step, other.step);
        if step == 0 {
            return true;
        }
        // Where the elements of `other` begin, within the steps of `self`.
        let offset = (other.start % step + step - self.start % step) % step;
        offset < self.item || offset + other.item > step
    }
}

fn gcd(one: usize, two: usize) -> usize {
    if two == 0 { one } else { gcd(two, one % two) }
}

/// An access to elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Access {
    elements: Elements,
    thread: usize,
    /// The generation of the process: an access from before a fork is no access of the child.
    generation: usize,
    exclusive: u32,
}

impl Access {
    fn new(elements: Elements, exclusive: bool) -> Self {
        Self { elements, thread: this_thread(), generation: generation(), exclusive: exclusive.into() }
    }

    fn conflicts(&self, with: &Self) -> bool {
        (self.exclusive | with.exclusive) != 0 && self.elements.overlap(&with.elements)
    }

    /// The index of the map that the access is in.
    fn magnitude(&self) -> usize {
        (usize::BITS - self.elements.range().len().saturating_sub(1).leading_zeros()).div_ceil(BITS) as usize
    }
}

/// Each magnitude has accesses up to so many times the length of the one before, as a number of bits. So only the
/// magnitudes with long accesses are searched far before an address.
const BITS: u32 = 6;

/// The accesses that begin at each address, and how many equal ones there are.
type ByStart = BTreeMap<usize, Vec<(Access, usize)>>;

/// The accesses behind one lock, in a map for each magnitude.
#[derive(Clone, Default)]
struct Accesses([ByStart; usize::BITS.div_ceil(BITS) as usize + 1]);

impl Accesses {
    /// An access that conflicts with the given one.
    fn conflicting(&self, access: &Access) -> Option<Access> {
        let Elements { start, end, .. } = access.elements;
        let conflicting = |(magnitude, accesses): (u32, &ByStart)| {
            let longest = 1_usize.checked_shl(BITS * magnitude).unwrap_or(usize::MAX);
            let first = start.saturating_sub(longest);
            let near = accesses.range(..end).rev().take_while(|(start, _)| **start >= first);
            near.flat_map(|(_, near)| near).find(|(near, _)| near.conflicts(access)).map(|(near, _)| *near)
        };
        (0..).zip(&self.0).filter(|(_, accesses)| !accesses.is_empty()).find_map(conflicting)
    }

    fn add(&mut self, access: Access) {
        let known = self.0[access.magnitude()].entry(access.elements.start).or_default();
        match known.iter_mut().find(|(known, _)| *known == access) {
            Some((_, count)) => *count += 1,
            None => known.push((access, 1)),
        }
    }

    /// Removes an access, if it was recorded.
    fn remove(&mut self, access: &Access) {
        let accesses = &mut self.0[access.magnitude()];
        let Entry::Occupied(mut entry) = accesses.entry(access.elements.start) else { return };
        let known = entry.get_mut();
        let Some(at) = known.iter().position(|(known, _)| known == access) else { return };
        known[at].1 -= 1;
        if known[at].1 == 0 {
            known.swap_remove(at);
        }
        if known.is_empty() {
            entry.remove();
        }
    }

    /// The accesses of the forking thread, which continues in the child. None if another thread held the lock.
    fn after_fork(parents: &'static Mutex<Self>) -> Self {
        let mut own = match parents.try_lock() {
            Ok(parents) => parents.clone(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
            Err(TryLockError::WouldBlock) => return Self::default(),
        };
        for accesses in &mut own.0 {
            accesses.retain(|_, known| {
                known.retain(|(access, _)| access.thread == forked_by());
                !known.is_empty()
            });
        }
        own
    }
}

/// The number of locks.
const LOCKS: usize = 16;

/// The accesses to all addresses. Pieces of 64 MiB take turns with the locks. An access is recorded behind the locks of all
/// pieces that it touches.
struct AccessTable(
    /// In boxes, because a large allocation is more likely to fail, which would end the program.
    [Box<Mutex<Accesses>>; LOCKS],
);

impl AccessTable {
    /// The table of a forked child, or the first one.
    fn after_fork(parents: Option<&'static Self>) -> Self {
        let accesses =
            |at: usize| parents.map_or_else(Accesses::default, |table| Accesses::after_fork(&table.0[at]));
        Self(array::from_fn(|at| Box::new(Mutex::new(accesses(at)))))
    }

    /// Locks the pieces that a range touches, in the order of the locks, and calls `run` with their accesses.
    fn with_locks<R>(
        &self,
        range: &Range<usize>,
        run: impl FnOnce(&mut [MutexGuard<'_, Accesses>]) -> R,
    ) -> R {
        let piece = |address: usize| address >> 26;
        let (first, last) = (piece(range.start), piece(range.end.saturating_sub(1)));
        // A panic cannot leave accesses half changed.
        let lock = |at: usize| self.0[at].lock().unwrap_or_else(PoisonError::into_inner);
        if last <= first {
            return run(&mut [lock(first % LOCKS)]);
        }
        let is_touched = |at: &usize| at.wrapping_sub(first) % LOCKS <= last - first;
        run(&mut (0..LOCKS).filter(is_touched).map(lock).collect::<Vec<_>>())
    }

    /// Records an access, unless it conflicts with another. `elsewhere` may record it in another table.
    fn begin(&self, access: Access, elsewhere: impl Fn() -> Option<BeginResult>) -> BeginResult {
        self.with_locks(&access.elements.range(), |pieces| {
            if let Some(access) = pieces.iter().find_map(|accesses| accesses.conflicting(&access)) {
                return BeginResult { refused: 1, access };
            }
            elsewhere().unwrap_or_else(|| {
                for accesses in pieces {
                    accesses.add(access);
                }
                BeginResult { refused: 0, access }
            })
        })
    }

    fn end(&self, access: Access) {
        self.with_locks(&access.elements.range(), |pieces| {
            for accesses in pieces {
                accesses.remove(&access);
            }
        });
    }

    fn forget(&self, range: &Range<usize>) {
        let all = Access::new(Elements::contiguous(range.clone()), true);
        self.with_locks(range, |pieces| {
            for accesses in pieces {
                while let Some(access) = accesses.conflicting(&all) {
                    accesses.remove(&access);
                }
            }
        });
    }
}

struct Registry {
    table: PerProcess<AccessTable>,
    /// The registry of another module, if that one is shared by all.
    shared: OnceLock<&'static SharedTable>,
}

static REGISTRY: Registry =
    Registry { table: PerProcess::new(AccessTable::after_fork), shared: OnceLock::new() };

/// The result of beginning an access: the access, or the one with which it conflicts.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BeginResult {
    refused: u32,
    access: Access,
}

/// The functions of a registry, called by other extension modules in the process, which may have other versions of this
/// crate. The first module that is initialized in Python provides the registry of all. The layout is fixed; a changed
/// one needs a new name.
#[repr(C)]
pub(crate) struct SharedTable {
    begin: extern "C" fn(elements: Elements, exclusive: u32) -> BeginResult,
    end: extern "C" fn(access: Access),
    forget: extern "C" fn(start: usize, end: usize),
}

/// The registry of this module.
pub(crate) static OWN: SharedTable = SharedTable { begin: begin_here, end: end_here, forget: forget_here };

extern "C" fn begin_here(elements: Elements, exclusive: u32) -> BeginResult {
    REGISTRY.table.get().begin(Access::new(elements, exclusive != 0), || None)
}

extern "C" fn end_here(access: Access) {
    REGISTRY.table.get().end(access);
}

extern "C" fn forget_here(start: usize, end: usize) {
    REGISTRY.table.get().forget(&(start..end));
}

/// Forgets accesses to freed memory. Views borrow their memory, so only leaked views can be left. The next allocation
/// at the address must not conflict with them.
pub(crate) fn forget(range: Range<usize>) {
    forget_here(range.start, range.end);
    if let Some(shared) = REGISTRY.shared.get() {
        (shared.forget)(range.start, range.end);
    }
}

/// Records all later accesses in this registry.
#[cfg(feature = "python")]
pub(crate) fn record_in(shared: &'static SharedTable) {
    if !core::ptr::eq(shared, &raw const OWN) {
        // Under the locks no thread is between reading `shared` and recording an access.
        REGISTRY.table.get().with_locks(&(0..usize::MAX), |_| {
            let _ = REGISTRY.shared.set(shared);
        });
    }
}

/// An access to host memory, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Borrow {
    access: Access,
    end: extern "C" fn(Access),
}

impl Borrow {
    /// Records an access to memory that may be shared. `None` means that nothing needs to be recorded.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(crate) fn from_shared(shared: Option<Elements>, exclusive: bool) -> Result<Option<Self>> {
        shared.map(|elements| Self::new(elements, exclusive)).transpose()
    }

    /// Records an access to these elements.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`] if a conflicting access exists.
    fn new(elements: Elements, exclusive: bool) -> Result<Self> {
        let end = Cell::new(OWN.end);
        // Accesses that began before `record_in` are still in this module's table.
        let result = REGISTRY.table.get().begin(Access::new(elements, exclusive), || {
            let shared = REGISTRY.shared.get()?;
            end.set(shared.end);
            Some((shared.begin)(elements, exclusive.into()))
        });
        if result.refused != 0 {
            return Err(already_borrowed(&result.access.elements.range(), result.access.exclusive != 0));
        }
        Ok(Self { access: result.access, end: end.get() })
    }
}

/// The error for an access beside a conflicting one.
#[cold]
pub(crate) fn already_borrowed(range: &Range<usize>, is_exclusive: bool) -> Error {
    let access = if is_exclusive { "a writer" } else { "a reader" };
    let found = format!("{access} of {:#x} to {:#x}", range.start, range.end);
    let allowed = "one writer, or any number of readers, of the same memory";
    let python_hint = "pass a copy if one call gets the same array twice";
    let error = Error::new(ErrorKind::AlreadyBorrowed, "data", found, allowed);
    error
        .with_rust_hint("drop the other view first, or copy one of two arrays that share memory")
        .with_python_hint(python_hint)
}

impl Drop for Borrow {
    fn drop(&mut self) {
        (self.end)(self.access);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    #[cfg(all(unix, not(miri)))]
    use std::thread;

    use super::*;
    #[cfg(all(unix, not(miri)))]
    use crate::process::fork::child::in_a_child;

    fn borrow(range: Range<usize>, exclusive: bool) -> Result<Borrow> {
        Borrow::new(Elements::contiguous(range), exclusive)
    }

    #[test]
    fn one_writer_or_many_readers() {
        // No allocator returns these addresses.
        let reader = borrow(8..16, false).unwrap();
        let conflicting = borrow(12..20, false).unwrap();
        assert_eq!(borrow(0..9, true).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        let writer = borrow(0..8, true).unwrap();
        assert_eq!(borrow(7..8, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
        drop((reader, conflicting, writer));
        drop(borrow(0..20, true).unwrap());
    }

    /// A table of its own, so that no other test is in it.
    fn table() -> AccessTable {
        AccessTable::after_fork(None)
    }

    fn begin(table: &AccessTable, elements: Elements, exclusive: bool) -> Option<Access> {
        let result = table.begin(Access::new(elements, exclusive), || None);
        (result.refused == 0).then_some(result.access)
    }

    fn write(table: &AccessTable, range: Range<usize>) -> Option<Access> {
        begin(table, Elements::contiguous(range), true)
    }

    #[test]
    fn random_accesses_are_judged_as_by_a_list() {
        let (table, mut held, mut state) = (table(), Vec::<Access>::new(), 1_u64);
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
            if random(3) == 0 && !held.is_empty() {
                let access = held.swap_remove(random(held.len()));
                table.end(access);
                continue;
            }
            // Short and long ranges, near and far from one another, in one piece or in many. Some have gaps.
            let (scale, place) = (random(30), random(40));
            let (start, item) = (place << scale, 1 + random(4));
            let range = start..start + item + random(3 << scale);
            let elements = match random(3) {
                0 => Elements::strided(range, item, [8, 12].into_iter()),
                _ => Elements::contiguous(range),
            };
            let access = Access::new(elements, random(4) == 0);
            let is_free = !held.iter().any(|other| other.conflicts(&access));
            let result = begin(&table, elements, access.exclusive != 0);
            assert_eq!(result.is_some(), is_free, "{access:?} beside {held:?}");
            held.extend(result);
        }
        for access in &held {
            table.end(*access);
        }
        assert!(table.0.iter().all(|accesses| accesses.lock().unwrap().0.iter().all(BTreeMap::is_empty)));
    }

    /// Items of two bytes, in rows of six or twelve: whether two columns have a byte in common.
    #[test]
    fn columns_are_told_apart() {
        let column =
            |at: usize, row: usize| Elements::strided(at..at + 10 * row + 2, 2, [row, 3 * row].into_iter());
        for (one, two, overlap) in [
            (column(0, 6), column(2, 6), false),
            (column(4, 6), column(0, 6), false),
            (column(0, 6), column(4, 12), false),
            (column(0, 6), column(1, 6), true),
            (column(0, 6), column(12, 12), true),
            (column(0, 6), column(2, 4), true),
            (column(0, 6), Elements::contiguous(2..6), false),
            (column(0, 6), Elements::contiguous(2..7), true),
        ] {
            assert_eq!((one.overlap(&two), two.overlap(&one)), (overlap, overlap), "{one:?} {two:?}");
        }
    }

    #[test]
    fn freed_memory_has_no_accesses() {
        let table = table();
        // Leaked, in one piece and in several.
        for range in [64..128, 32..96, 0..1 << 30] {
            assert!(begin(&table, Elements::contiguous(range), false).is_some());
        }
        assert!(write(&table, 4096..4097).is_none());
        table.forget(&(4096..4097));
        assert!(write(&table, 4096..4097).is_some() && write(&table, 64..65).is_none());
        table.forget(&(0..1 << 20));
        assert!(write(&table, 0..128).is_some());
    }

    #[test]
    fn of_two_writers_at_once_one_is_refused() {
        let (table, inside) = (table(), AtomicUsize::new(0));
        let turns = if cfg!(miri) { 10 } else { 20_000 };
        // The same address, in one piece and in several.
        let run = |length: usize| {
            for _ in 0..turns {
                if let Some(access) = write(&table, 4096..4096 + length) {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    table.end(access);
                }
            }
        };
        std::thread::scope(|scope| {
            for length in [8, 600, 100_000, 1 << 30] {
                scope.spawn(move || run(length));
            }
        });
        assert!(write(&table, 0..usize::MAX).is_some());
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_keeps_the_accesses_of_the_forking_thread() {
        static PARENTS: PerProcess<AccessTable> = PerProcess::new(AccessTable::after_fork);
        // Forks are counted from here on.
        generation();
        let hold = |start: usize| write(PARENTS.get(), start..start + 8).unwrap();
        let own = hold(0);
        thread::scope(|scope| assert_ne!(scope.spawn(|| hold(800)).join().unwrap().thread, own.thread));
        // Any thread of the child may be the first to use the table.
        let ask = || [0, 800].map(|start| write(PARENTS.get(), start..start + 8).is_some());
        assert!(in_a_child(|| {
            thread::scope(|scope| assert_eq!(scope.spawn(ask).join().unwrap(), [false, true]));
            PARENTS.get().end(own);
            assert!(write(PARENTS.get(), 0..8).is_some());
        }));
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_needs_no_lock_of_the_parent_and_ends_no_access_of_another() {
        let mut before = Some(borrow(40..48, true).unwrap());
        let locked: Vec<_> = REGISTRY.table.get().0.iter().map(|accesses| accesses.lock().unwrap()).collect();
        let child = in_a_child(|| {
            let after_fork = borrow(40..48, true).unwrap();
            // The access from before the fork is not in the child's table, so its end must not end another one.
            drop(before.take());
            assert_eq!(borrow(40..48, false).unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
            drop(after_fork);
            drop(borrow(40..48, true).unwrap());
        });
        drop(locked);
        assert!(child);
    }
}
