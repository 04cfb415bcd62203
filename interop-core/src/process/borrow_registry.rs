//! The registry of host memory that Rust code is currently reading or writing.
//!
//! Two structs can share memory without the compiler's knowledge, for example two imports of one array. So each host
//! access to memory that may be shared is recorded here while it lasts: one writer, or any number of readers. A
//! conflicting access returns an error. Accesses by other libraries are not recorded. All extension modules with this
//! crate in one interpreter share one registry.
//!
//! An access is found by its address: it lies in one or two *granules* of a size that its length decides. The granules
//! are spread over stripes, each behind its own lock. So an access costs the same beside any number of others, and
//! threads that use other memory rarely meet.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::error::{Error, ErrorKind, Result};
use crate::process::fork::{PerProcess, forked_by, generation, this_thread};
use crate::process::granules::{Key, Keys, LISTS, STRIPES, level_of, list_of, own_keys, stripe_of};

/// An access to a range of addresses. Equal accesses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Access {
    start: usize,
    end: usize,
    thread: usize,
    /// The generation of the process: an access from before a fork is no access of the child.
    generation: usize,
    exclusive: u32,
}

impl Access {
    fn new(range: &Range<usize>, exclusive: bool) -> Self {
        let Range { start, end } = *range;
        Self { start, end, thread: this_thread(), generation: generation(), exclusive: exclusive.into() }
    }

    fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.start < range.end && range.start < self.end
    }

    fn conflicts(&self, with: &Self) -> bool {
        (self.exclusive | with.exclusive) != 0 && self.overlaps(&with.range())
    }
}

/// An access in a granule, and how many of it there are.
type Entry = (Key, Access, usize);

/// The accesses of the granules whose keys lead to one lock. They are spread over lists by the keys, so that each list is
/// short. In a cache line of its own, so that threads do not slow each other down.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([Vec<Entry>; LISTS]);

struct Table {
    /// In boxes, because a large allocation is more likely to fail, which would end the program.
    stripes: [Box<Mutex<Stripe>>; STRIPES],
    /// The levels that may have accesses, one bit each.
    levels: AtomicU32,
}

struct Registry {
    table: PerProcess<Table>,
    /// The registry of another module, if that one is shared by all.
    shared: OnceLock<&'static SharedTable>,
}

static REGISTRY: Registry = Registry { table: PerProcess::new(Table::after_fork), shared: OnceLock::new() };

/// Stripes that are locked.
struct Locked<'t, 'l> {
    number: usize,
    stripe: RefCell<MutexGuard<'t, Stripe>>,
    others: Option<&'l Locked<'t, 'l>>,
}

impl Locked<'_, '_> {
    fn for_each(mut locked: Option<&Self>, mut run: impl FnMut(usize, &mut Stripe)) {
        while let Some(Locked { number, stripe, others }) = locked {
            run(*number, &mut stripe.borrow_mut());
            locked = *others;
        }
    }
}

impl Table {
    /// The table of a forked child. It keeps the accesses of the forking thread, which continues there, and drops those
    /// of all other threads. A stripe whose lock another thread held starts empty.
    fn after_fork(parents: Option<&'static Self>) -> Self {
        let stripe =
            |at: usize| parents.map_or_else(Stripe::default, |table| Stripe::after_fork(&table.stripes[at]));
        let mut levels = 0;
        let stripes = core::array::from_fn(|at| {
            let stripe = stripe(at);
            levels |= stripe.levels();
            Box::new(Mutex::new(stripe))
        });
        Self { stripes, levels: AtomicU32::new(levels) }
    }

    /// Locks stripes in their order, and calls `run`.
    fn lock<'t>(
        &'t self,
        stripes: u64,
        locked: Option<&Locked<'t, '_>>,
        run: &mut impl FnMut(Option<&Locked<'t, '_>>),
    ) {
        if stripes == 0 {
            return run(locked);
        }
        let number = stripes.trailing_zeros() as usize;
        // A panic cannot leave a stripe half changed.
        let stripe = self.stripes[number].lock().unwrap_or_else(PoisonError::into_inner);
        let locked = Locked { number, stripe: RefCell::new(stripe), others: locked };
        self.lock(stripes & (stripes - 1), Some(&locked), run);
    }

    /// Locks the granules that can have accesses to a range, and calls `run` with them. `own` is the level of a new access.
    ///
    /// A level is announced before its granules are locked, and read again under the locks. So of two accesses that
    /// begin at once, one at least locks the granules of both.
    fn visit<'t>(
        &'t self,
        range: &Range<usize>,
        own: u32,
        mut run: impl FnMut(Option<&Locked<'t, '_>>, &Keys),
    ) {
        let (mut is_done, mut keys) = (false, Keys::NONE);
        while !is_done {
            let mut levels = self.levels.load(Ordering::SeqCst);
            if levels & own != own {
                levels = self.levels.fetch_or(own, Ordering::SeqCst) | own;
            }
            keys.fill(range, levels);
            self.lock(keys.stripes, None, &mut |locked| {
                let now = self.levels.load(Ordering::SeqCst);
                is_done = now & !levels == 0 && now & own == own;
                if is_done {
                    run(locked, &keys);
                }
            });
        }
    }

    /// Records an access, unless it conflicts with another. `elsewhere` may record it in another table.
    fn begin(&self, access: Access, elsewhere: impl Fn() -> Option<Begun>) -> Begun {
        let range = access.range();
        let mut begun = Begun { refused: 0, access };
        let own = if REGISTRY.shared.get().is_some() { 0 } else { 1 << level_of(&range) };
        self.visit(&range, own, |locked, keys| {
            let mut conflicting = None;
            Locked::for_each(locked, |number, stripe| {
                conflicting = conflicting.or_else(|| stripe.conflicting(number, &access, keys));
            });
            if let Some(access) = conflicting {
                begun = Begun { refused: 1, access };
            } else if let Some(recorded) = elsewhere() {
                begun = recorded;
            } else {
                Self::change(locked, &access, Stripe::add);
            }
            if keys.are_all {
                // No access begins meanwhile, so levels without one can be forgotten.
                let mut left = 0;
                Locked::for_each(locked, |_, stripe| left |= stripe.levels());
                self.levels.store(left, Ordering::SeqCst);
            }
        });
        begun
    }

    fn end(&self, access: &Access) {
        let stripes = own_keys(&access.range()).iter().fold(0, |stripes, key| stripes | 1 << stripe_of(*key));
        self.lock(stripes, None, &mut |locked| Self::change(locked, access, Stripe::remove));
    }

    fn forget(&self, range: &Range<usize>) {
        if self.levels.load(Ordering::SeqCst) != 0 {
            self.visit(range, 0, |locked, _| Locked::for_each(locked, |_, stripe| stripe.forget(range)));
        }
    }

    /// Changes the granules of an access, whose stripes are locked.
    fn change(locked: Option<&Locked<'_, '_>>, access: &Access, change: fn(&mut Stripe, Key, &Access)) {
        let [first, last] = own_keys(&access.range());
        Locked::for_each(locked, |number, stripe| {
            if stripe_of(first) == number {
                change(stripe, first, access);
            }
            if first != last && stripe_of(last) == number {
                change(stripe, last, access);
            }
        });
    }
}

impl Stripe {
    fn after_fork(parents: &'static Mutex<Self>) -> Self {
        let parents = match parents.try_lock() {
            Ok(stripe) => stripe,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Self::default(),
        };
        let of_forking_thread = |list: &Vec<Entry>| -> Vec<Entry> {
            list.iter().filter(|(_, access, _)| access.thread == forked_by()).copied().collect()
        };
        Self(core::array::from_fn(|at| of_forking_thread(&parents.0[at])))
    }

    /// The levels of its accesses, one bit each.
    fn levels(&self) -> u32 {
        self.0.iter().flatten().fold(0, |levels, (key, ..)| levels | 1 << (key & 15))
    }

    /// The accesses in these granules.
    fn in_granules<'s>(&'s self, number: usize, keys: &'s Keys) -> impl Iterator<Item = &'s Access> {
        let of = |key| self.0[list_of(key)].iter().filter(move |(own, ..)| *own == key);
        let all = keys.are_all.then(|| self.0.iter().flatten());
        let entries = keys.of_stripe(number).flat_map(of).chain(all.into_iter().flatten());
        entries.map(|(_, access, _)| access)
    }

    /// An access in these granules that conflicts with the given one.
    fn conflicting(&self, number: usize, access: &Access, keys: &Keys) -> Option<Access> {
        self.in_granules(number, keys).find(|other| other.conflicts(access)).copied()
    }

    fn add(&mut self, key: Key, access: &Access) {
        let list = &mut self.0[list_of(key)];
        match list.iter_mut().find(|(own, known, _)| *own == key && known == access) {
            Some((.., count)) => *count += 1,
            None => list.push((key, *access, 1)),
        }
    }

    fn remove(&mut self, key: Key, access: &Access) {
        let list = &mut self.0[list_of(key)];
        let known = list.iter().position(|(own, known, _)| *own == key && known == access);
        let Some(at) = known else { return };
        list[at].2 -= 1;
        if list[at].2 == 0 {
            list.swap_remove(at);
        }
    }

    /// Removes all accesses to a range.
    fn forget(&mut self, range: &Range<usize>) {
        for list in &mut self.0 {
            list.retain(|(_, access, _)| !access.overlaps(range));
        }
    }
}

/// The result of beginning an access: the access, or the one with which it conflicts.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Begun {
    refused: u32,
    access: Access,
}

/// The functions of a registry, called by other extension modules in the process, which may have other versions of this
/// crate. The first module that is initialized in Python provides the registry of all. The layout is fixed; a changed
/// one needs a new name.
#[repr(C)]
pub(crate) struct SharedTable {
    begin: extern "C" fn(start: usize, end: usize, exclusive: u32) -> Begun,
    end: extern "C" fn(access: Access),
    forget: extern "C" fn(start: usize, end: usize),
}

/// The registry of this module.
pub(crate) static OWN: SharedTable = SharedTable { begin: begin_here, end: end_here, forget: forget_here };

extern "C" fn begin_here(start: usize, end: usize, exclusive: u32) -> Begun {
    REGISTRY.table.get().begin(Access::new(&(start..end), exclusive != 0), || None)
}

extern "C" fn end_here(access: Access) {
    REGISTRY.table.get().end(&access);
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
        REGISTRY.table.get().lock(u64::MAX, None, &mut |_| {
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
    pub(crate) fn from_shared(shared: Option<(usize, usize)>, exclusive: bool) -> Result<Option<Self>> {
        shared.map(|(start, end)| Self::new(start..end, exclusive)).transpose()
    }

    /// Records an access to these addresses.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBorrowed`] if a conflicting access exists.
    fn new(range: Range<usize>, exclusive: bool) -> Result<Self> {
        let end = Cell::new(OWN.end);
        // Accesses that began before `record_in` are still in this module's table.
        let begun = REGISTRY.table.get().begin(Access::new(&range, exclusive), || {
            let shared = REGISTRY.shared.get()?;
            end.set(shared.end);
            Some((shared.begin)(range.start, range.end, exclusive.into()))
        });
        if begun.refused != 0 {
            return Err(already_borrowed(&begun.access.range(), begun.access.exclusive != 0));
        }
        Ok(Self { access: begun.access, end: end.get() })
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

    /// A table of its own, so that no other test is in it.
    fn table() -> Table {
        Table::after_fork(None)
    }

    fn begin(table: &Table, range: Range<usize>, exclusive: bool) -> Option<Access> {
        let begun = table.begin(Access::new(&range, exclusive), || None);
        (begun.refused == 0).then_some(begun.access)
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
                table.end(&access);
                continue;
            }
            // Short and long ranges, near and far from one another.
            let (scale, place) = (random(26), random(40));
            let start = place << scale;
            let access = Access::new(&(start..start + 1 + random(3 << scale)), random(4) == 0);
            let is_free = !held.iter().any(|other| other.conflicts(&access));
            let begun = begin(&table, access.range(), access.exclusive != 0);
            assert_eq!(begun.is_some(), is_free, "{access:?} beside {held:?}");
            held.extend(begun);
        }
        for access in &held {
            table.end(access);
        }
        assert!(table.stripes.iter().all(|stripe| stripe.lock().unwrap().0.iter().all(Vec::is_empty)));
    }

    /// Many accesses elsewhere, and many equal ones, are not looked at.
    #[test]
    fn an_access_costs_the_same_beside_many_others() {
        let table = table();
        for number in 1..=if cfg!(miri) { 100 } else { 10_000 } {
            begin(&table, number << 16..(number << 16) + 1000, number % 2 == 0).unwrap();
            begin(&table, 64..128, false).unwrap();
        }
        for range in [0..64, 64..128, 5 << 16..(5 << 16) + 64, 3 << 15..(3 << 15) + 2048] {
            let mut entries = 0;
            table.visit(&range, 0, |locked, keys| {
                assert!(!keys.are_all);
                Locked::for_each(locked, |number, stripe| {
                    entries += stripe.in_granules(number, keys).count();
                });
            });
            assert!(entries <= 2, "{entries} entries for {range:?}");
        }
    }

    #[test]
    fn of_two_writers_at_once_one_is_refused() {
        let (table, inside) = (table(), AtomicU32::new(0));
        let turns = if cfg!(miri) { 10 } else { 20_000 };
        // The same address on different levels.
        let write = |length: usize| {
            for _ in 0..turns {
                if let Some(access) = begin(&table, 4096..4096 + length, true) {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    table.end(&access);
                }
            }
        };
        std::thread::scope(|scope| {
            for length in [8, 600, 100_000, 1 << 24] {
                scope.spawn(move || write(length));
            }
        });
        assert!(begin(&table, 0..usize::MAX, true).is_some());
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_keeps_the_accesses_of_the_forking_thread() {
        static PARENTS: PerProcess<Table> = PerProcess::new(Table::after_fork);
        // Forks are counted from here on.
        generation();
        let hold = |start: usize| begin(PARENTS.get(), start..start + 8, true).unwrap();
        let own = hold(0);
        thread::scope(|scope| assert_ne!(scope.spawn(|| hold(800)).join().unwrap().thread, own.thread));
        // Any thread of the child may be the first to use the table.
        let ask = || [0, 800].map(|start| begin(PARENTS.get(), start..start + 8, true).is_some());
        assert!(in_a_child(|| {
            thread::scope(|scope| assert_eq!(scope.spawn(ask).join().unwrap(), [false, true]));
            PARENTS.get().end(&own);
            assert!(begin(PARENTS.get(), 0..8, true).is_some());
        }));
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_needs_no_lock_of_the_parent_and_never_reuses_tickets() {
        let mut before = Some(Borrow::new(40..48, true).unwrap());
        let at_work: Vec<_> =
            REGISTRY.table.get().stripes.iter().map(|stripe| stripe.lock().unwrap()).collect();
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
