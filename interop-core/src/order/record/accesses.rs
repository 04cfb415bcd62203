//! Accesses to memory behind locks.
//!
//! Pieces of the address space share the locks, so that threads with memory of their own rarely wait for each other: allocators
//! give each thread such pieces.
#![expect(clippy::inline_always, reason = "nearly all accesses are in one piece, and need no loop")]

use core::array;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::array::elements::Elements;
use crate::order::record::access::{Access, Recorded, Ticket};
use crate::order::record::few::FewAccesses;
use crate::order::record::many::ManyAccesses;
use crate::process::fork::{forked_by, generation, this_thread};

/// The accesses behind one lock: a few in places, in no order. When there are more, all are in maps, until the last of them has ended.
struct Accesses {
    few: FewAccesses,
    many: ManyAccesses,
    /// The number of the next access. Those of two locks differ.
    next: u64,
}

impl Accesses {
    /// No accesses, behind one of the locks.
    fn new(lock: usize) -> Self {
        // A child may not know the numbers of its parent, whose accesses it may end.
        let next = (generation() as u64) << 48 | lock as u64;
        Self { few: FewAccesses::default(), many: ManyAccesses::default(), next }
    }

    /// An access that conflicts with the given one, and that `matters`.
    #[inline]
    fn conflicting(&self, access: &Access, matters: impl Fn(&Access) -> bool) -> Option<&Recorded> {
        let is_met = |near: &Recorded| near.access.conflicts(access) && matters(&near.access);
        match self.few.find(is_met) {
            None if !self.many.is_empty() => self.many.near(&access.elements.range(), is_met),
            few => few,
        }
    }

    /// Numbers an access and adds it, behind the first of its locks. Returns the number, and its place, if it has one.
    #[inline]
    fn begin(&mut self, access: &Access, thread: usize) -> (u64, Option<usize>) {
        self.next += LOCKS as u64;
        let recorded = Recorded { access: *access, number: self.next, thread };
        if self.many.is_empty() {
            return (recorded.number, self.add(recorded));
        }
        (self.many.begin(recorded), None)
    }

    /// Adds an access. Returns its place, if it has one.
    #[inline]
    fn add(&mut self, recorded: Recorded) -> Option<usize> {
        let place = if self.many.is_empty() { self.few.add(recorded) } else { None };
        if place.is_none() {
            self.add_to_many(recorded);
        }
        place
    }

    #[cold]
    fn add_to_many(&mut self, recorded: Recorded) {
        self.few.all().for_each(|few| self.many.add(*few));
        self.few.clear();
        self.many.add(recorded);
    }

    /// Removes an access. Returns whether it was recorded, and as that of a device.
    #[inline]
    fn remove(&mut self, ticket: &Ticket) -> Option<bool> {
        let by_device = |recorded: &Recorded| recorded.access.by_device != 0;
        if self.many.is_empty() {
            return self.few.remove(ticket).map(by_device);
        }
        self.many.remove(ticket).as_ref().map(by_device)
    }

    /// The accesses of the forking thread, which continues in the child. None if another thread held the lock.
    fn after_fork(parents: &'static Mutex<Self>, lock: usize) -> Self {
        let mut own = Self::new(lock);
        let parents = match parents.try_lock() {
            Ok(parents) => parents,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return own,
        };
        let all = parents.few.all().copied().chain(parents.many.all());
        for recorded in all.filter(|recorded| recorded.thread == forked_by()) {
            own.add(recorded);
        }
        own
    }
}

/// The number of locks.
const LOCKS: usize = 16;

/// The accesses to all addresses. Pieces of 64 MiB take turns with the locks. An access is recorded behind the locks of all
/// pieces that it touches.
pub(crate) struct AccessTable(
    /// In boxes, because a large allocation is more likely to fail, which would end the program.
    [Box<Mutex<Accesses>>; LOCKS],
);

/// The number of accesses by devices in all tables of this module. While there is none, whoever asks takes no lock. After a
/// fork it may count accesses that the child does not have: then locks are taken in vain.
pub(crate) static OPEN_ON_DEVICES: AtomicUsize = AtomicUsize::new(0);

impl AccessTable {
    /// The table of a forked child, or the first one.
    pub(crate) fn after_fork(parents: Option<&'static Self>) -> Self {
        let accesses = |at: usize| {
            parents.map_or_else(|| Accesses::new(at), |table| Accesses::after_fork(&table.0[at], at))
        };
        Self(array::from_fn(|at| Box::new(Mutex::new(accesses(at)))))
    }

    /// Locks the pieces that a range touches, if there is one lock for all of them.
    #[inline]
    fn lock_one(&self, range: &Range<usize>) -> Option<MutexGuard<'_, Accesses>> {
        let (first, last) = pieces(range);
        (last <= first).then(|| self.lock(first % LOCKS))
    }

    /// Locks the pieces that a range touches, in the order of the locks.
    #[cold]
    fn lock_several(&self, range: &Range<usize>) -> Vec<MutexGuard<'_, Accesses>> {
        let (first, last) = pieces(range);
        let is_touched = |at: &usize| at.wrapping_sub(first) % LOCKS <= last - first;
        (0..LOCKS).filter(is_touched).map(|at| self.lock(at)).collect()
    }

    #[inline]
    fn lock(&self, at: usize) -> MutexGuard<'_, Accesses> {
        // A panic cannot leave accesses half changed.
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` while no access begins or ends.
    #[cfg(any(feature = "python", test))]
    pub(crate) fn between_accesses(&self, change: impl FnOnce()) {
        let _locked = self.lock_several(&(0..usize::MAX));
        change();
    }

    /// Records an access. `elsewhere` may record it in another table.
    ///
    /// # Errors
    ///
    /// An access with which it conflicts.
    #[inline]
    pub(crate) fn begin(
        &self,
        access: &Access,
        elsewhere: impl FnOnce() -> Option<Result<Ticket, Access>>,
    ) -> Result<Ticket, Access> {
        match self.lock_one(&access.elements.range()) {
            Some(piece) => begin_behind(&mut [piece], access, elsewhere),
            None => begin_behind(&mut self.lock_several(&access.elements.range()), access, elsewhere),
        }
    }

    /// Compares an access with those by devices, and records nothing. Views of the host do not count: whoever asks goes on
    /// after the call, as another library does.
    ///
    /// # Errors
    ///
    /// An access with which it conflicts.
    pub(crate) fn ask(&self, access: &Access) -> Result<(), Access> {
        let met = self.met(access, |near| near.by_device != 0);
        met.map_or(Ok(()), |other| Err(other.access))
    }

    /// A recorded access that conflicts with the given one, and that `matters`.
    fn met(&self, access: &Access, matters: impl Fn(&Access) -> bool) -> Option<Recorded> {
        let met_behind = |pieces: &[MutexGuard<'_, Accesses>]| {
            pieces.iter().find_map(|accesses| accesses.conflicting(access, &matters).copied())
        };
        match self.lock_one(&access.elements.range()) {
            Some(piece) => met_behind(&[piece]),
            None => met_behind(&self.lock_several(&access.elements.range())),
        }
    }

    #[inline]
    pub(crate) fn end(&self, ticket: &Ticket) {
        match self.lock_one(&ticket.range()) {
            Some(piece) => end_behind(&mut [piece], ticket),
            None => end_behind(&mut self.lock_several(&ticket.range()), ticket),
        }
    }

    /// Ends all accesses to a range.
    pub(crate) fn forget(&self, range: &Range<usize>) {
        let all = Access::by_host(Elements::contiguous(range.clone()), true);
        while let Some(Recorded { access, number, .. }) = self.met(&all, |_| true) {
            // Behind all locks of the access, which may touch more pieces than the range does.
            self.end(&Ticket::new(&access.elements.range(), number, None));
        }
    }
}

/// The first and the last piece that a range touches.
#[inline]
fn pieces(range: &Range<usize>) -> (usize, usize) {
    let piece = |address: usize| address >> 26;
    let first = piece(range.start);
    (first, piece(range.end.saturating_sub(1)).max(first))
}

/// As [`AccessTable::begin`], in pieces that are locked.
#[inline(always)]
fn begin_behind(
    pieces: &mut [MutexGuard<'_, Accesses>],
    access: &Access,
    elsewhere: impl FnOnce() -> Option<Result<Ticket, Access>>,
) -> Result<Ticket, Access> {
    for accesses in &*pieces {
        if let Some(other) = accesses.conflicting(access, |_| true) {
            return Err(other.access);
        }
    }
    if let Some(elsewhere) = elsewhere() {
        return elsewhere;
    }
    let thread = this_thread();
    let Some((first, others)) = pieces.split_first_mut() else { return Ok(Ticket::NONE) };
    let (number, mut place) = first.begin(access, thread);
    for accesses in others {
        place = accesses.add(Recorded { access: *access, number, thread });
    }
    if access.by_device != 0 {
        OPEN_ON_DEVICES.fetch_add(1, Ordering::SeqCst);
    }
    Ok(Ticket::new(&access.elements.range(), number, place))
}

/// As [`AccessTable::end`], in pieces that are locked.
#[inline(always)]
fn end_behind(pieces: &mut [MutexGuard<'_, Accesses>], ticket: &Ticket) {
    let mut by_device = None;
    for accesses in pieces {
        by_device = accesses.remove(ticket).or(by_device);
    }
    if by_device == Some(true) {
        OPEN_ON_DEVICES.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(unix, not(miri)))]
    use std::thread;

    use super::*;
    use crate::driver::stream::StreamId;
    #[cfg(all(unix, not(miri)))]
    use crate::order::record::few::FEW;
    #[cfg(all(unix, not(miri)))]
    use crate::process::fork::PerProcess;
    #[cfg(all(unix, not(miri)))]
    use crate::process::fork::child::in_a_child;

    /// A table of its own, so that no other test is in it.
    fn table() -> AccessTable {
        AccessTable::after_fork(None)
    }

    fn begin(table: &AccessTable, access: Access) -> Option<Ticket> {
        table.begin(&access, || None).ok()
    }

    fn write(table: &AccessTable, range: Range<usize>) -> Option<Ticket> {
        begin(table, Access::by_host(Elements::contiguous(range), true))
    }

    fn is_empty(table: &AccessTable) -> bool {
        table.0.iter().all(|accesses| {
            let Accesses { few, many, .. } = &*accesses.lock().unwrap();
            few.all().next().is_none() && many.is_empty() && many.all().next().is_none()
        })
    }

    /// With few accesses at a time and with many, so that they move between the list and the maps.
    #[test]
    fn random_accesses_are_judged_as_by_a_list() {
        let (table, mut held, mut state) = (table(), Vec::<(Access, Ticket)>::new(), 1_u64);
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let turns = if cfg!(miri) { 100 } else { 20_000 };
        for turn in 0..turns {
            // First more accesses begin than end, then the other way round.
            let ends = if turn * 4 / turns % 2 == 0 { random(3) == 0 } else { random(3) != 0 };
            if ends && !held.is_empty() {
                let (_, ticket) = held.swap_remove(random(held.len()));
                table.end(&ticket);
                continue;
            }
            // Short and long ranges, near and far from one another, in one piece or in many. Some have gaps.
            let (scale, place) = (random(30), random(40));
            let (start, item) = (place << scale, 1 + random(4));
            let range = start..start + item + random(3 << scale);
            let elements = match random(3) {
                0 => Elements::strided(range, item, [(2, 8), (2, 12)].into_iter()),
                _ => Elements::contiguous(range),
            };
            let writes = random(8) == 0;
            let access = match random(4) {
                0 => Access::by_host(elements, writes),
                stream => Access::by_device(elements, writes, StreamId { handle: stream - 1, context: 0 }),
            };
            let is_free = !held.iter().any(|(other, _)| other.conflicts(&access));
            let by_devices = held.iter().filter(|(other, _)| other.by_device != 0);
            let is_free_of_devices = !by_devices.clone().any(|(other, _)| other.conflicts(&access));
            assert_eq!(table.ask(&access).is_ok(), is_free_of_devices, "{access:?} beside {held:?}");
            let result = begin(&table, access);
            assert_eq!(result.is_some(), is_free, "{access:?} beside {held:?}");
            held.extend(result.map(|ticket| (access, ticket)));
        }
        for (_, ticket) in &held {
            table.end(ticket);
        }
        assert!(is_empty(&table));
    }

    #[test]
    fn accesses_on_one_stream_do_not_conflict() {
        let on = |handle, context| StreamId { handle, context };
        let write = |on| Access::by_device(Elements::contiguous(64..128), true, on);
        let by_host = Access::by_host(Elements::contiguous(64..128), false);
        for (other, conflicts) in [
            (write(on(8, 0)), false),
            (write(on(16, 0)), true),
            (write(on(8, 1)), true),
            (write(StreamId::NONE), true),
            (by_host, true),
        ] {
            let table = table();
            let first = begin(&table, write(on(8, 0))).unwrap();
            assert_eq!(table.ask(&other).is_err(), conflicts, "{other:?}");
            let second = begin(&table, other);
            assert_eq!(second.is_none(), conflicts, "{other:?}");
            second.into_iter().chain([first]).for_each(|ticket| table.end(&ticket));
            assert!(is_empty(&table));
        }
        // Neither the host nor a stream that is not known is ordered with another one like it.
        for unordered in [write(StreamId::NONE), Access::by_host(by_host.elements, true)] {
            let table = table();
            assert!(begin(&table, unordered).is_some() && begin(&table, unordered).is_none());
        }
    }

    #[test]
    fn freed_memory_has_no_accesses() {
        let table = table();
        // Leaked, in one piece and in several.
        for range in [64..128, 32..96, 0..1 << 30] {
            assert!(begin(&table, Access::by_host(Elements::contiguous(range), false)).is_some());
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
                if let Some(ticket) = write(&table, 4096..4096 + length) {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    table.end(&ticket);
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
        // So many that they are in the maps.
        let more: Vec<_> = (0..2 * FEW).map(|at| hold(8000 + 8 * at)).collect();
        let _of_another_thread = thread::scope(|scope| scope.spawn(|| hold(800)).join().unwrap());
        // Any thread of the child may be the first to use the table.
        let ask = || [0, 800, 8000].map(|start| write(PARENTS.get(), start..start + 8).is_some());
        assert!(in_a_child(|| {
            thread::scope(|scope| assert_eq!(scope.spawn(ask).join().unwrap(), [false, true, false]));
            PARENTS.get().end(&own);
            for recorded in &more {
                PARENTS.get().end(recorded);
            }
            assert!(write(PARENTS.get(), 0..8).is_some() && write(PARENTS.get(), 8000..9000).is_some());
        }));
    }
}
