//! Accesses to memory behind locks, and which of them conflict.
//!
//! Pieces of the address space share the locks, so that threads with memory of their own rarely wait for each other: allocators
//! give each thread such pieces.

use core::array;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::array::elements::Elements;
use crate::driver::stream::StreamKey;
use crate::process::fork::{forked_by, generation, this_thread};

/// An access to elements, for reading or for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Access {
    pub(crate) elements: Elements,
    on: StreamKey,
    pub(crate) writes: u32,
    /// Whether it is that of kernels on a stream, and not that of the host.
    by_device: u32,
}

impl Access {
    pub(crate) fn by_host(elements: Elements, writes: bool) -> Self {
        Self { elements, on: StreamKey::NONE, writes: writes.into(), by_device: 0 }
    }

    pub(crate) fn by_device(elements: Elements, writes: bool, on: StreamKey) -> Self {
        Self { elements, on, writes: writes.into(), by_device: 1 }
    }

    /// Two accesses on one stream are ordered by it.
    fn conflicts(&self, with: &Self) -> bool {
        (self.writes | with.writes) != 0
            && (self.on != with.on || self.on == StreamKey::NONE)
            && self.elements.overlap(&with.elements)
    }
}

/// An access that a thread has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Recorded {
    pub(crate) access: Access,
    thread: usize,
    /// The generation of the process: an access from before a fork is no access of the child.
    generation: usize,
}

impl Recorded {
    pub(crate) fn by_this_thread(access: Access) -> Self {
        Self { access, thread: this_thread(), generation: generation() }
    }
}

/// The largest number of accesses in a list. A longer one would be slower than the maps.
const FEW: usize = 32;

/// The accesses behind one lock: a few in a list, in no order. More than [`FEW`] are in maps, until the last of them has ended.
#[derive(Clone, Default)]
struct Accesses {
    few: Vec<Recorded>,
    many: ManyAccesses,
}

impl Accesses {
    /// An access that conflicts with the given one, and that `matters`.
    fn conflicting(&self, access: &Access, matters: impl Fn(&Access) -> bool) -> Option<Recorded> {
        let is_met = |near: &Recorded| near.access.conflicts(access) && matters(&near.access);
        if self.many.count == 0 {
            return self.few.iter().find(|near| is_met(near)).copied();
        }
        self.many.near(access.elements.range(), is_met)
    }

    fn add(&mut self, recorded: Recorded) {
        if self.many.count == 0 && self.few.len() < FEW {
            return self.few.push(recorded);
        }
        self.few.drain(..).for_each(|few| self.many.add(few));
        self.many.add(recorded);
    }

    /// Removes an access. Returns whether it was recorded.
    fn remove(&mut self, recorded: &Recorded) -> bool {
        if self.many.count != 0 {
            return self.many.remove(recorded);
        }
        // The last one that began is often the first that ends.
        let Some(at) = self.few.iter().rposition(|known| known == recorded) else { return false };
        self.few.swap_remove(at);
        true
    }

    /// The accesses of the forking thread, which continues in the child. None if another thread held the lock.
    fn after_fork(parents: &'static Mutex<Self>) -> Self {
        let parents = match parents.try_lock() {
            Ok(parents) => parents,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Self::default(),
        };
        let mut own = Self::default();
        let all = parents.few.iter().copied().chain(parents.many.all());
        all.filter(|recorded| recorded.thread == forked_by()).for_each(|recorded| own.add(recorded));
        own
    }
}

/// The accesses that begin at each address, and how many equal ones there are.
type ByStart = BTreeMap<usize, Vec<(Recorded, usize)>>;

/// Each magnitude has accesses up to so many times the length of the one before, as a number of bits. So only the
/// magnitudes with long accesses are searched far before an address.
const BITS: u32 = 6;

/// Accesses in the order of their addresses, in a map for each magnitude.
#[derive(Clone, Default)]
struct ManyAccesses {
    by_magnitude: [ByStart; usize::BITS.div_ceil(BITS) as usize + 1],
    count: usize,
}

impl ManyAccesses {
    /// The index of the map that an access is in.
    fn magnitude(recorded: &Recorded) -> usize {
        let length = recorded.access.elements.range().len();
        (usize::BITS - length.saturating_sub(1).leading_zeros()).div_ceil(BITS) as usize
    }

    /// The first access that `is_met` and may touch this range.
    fn near(&self, range: Range<usize>, is_met: impl Fn(&Recorded) -> bool) -> Option<Recorded> {
        let in_map = |(magnitude, accesses): (u32, &ByStart)| {
            let longest = 1_usize.checked_shl(BITS * magnitude).unwrap_or(usize::MAX);
            let first = range.start.saturating_sub(longest);
            let near = accesses.range(..range.end).rev().take_while(|(start, _)| **start >= first);
            near.flat_map(|(_, near)| near).map(|(near, _)| *near).find(&is_met)
        };
        (0..).zip(&self.by_magnitude).filter(|(_, accesses)| !accesses.is_empty()).find_map(in_map)
    }

    fn add(&mut self, recorded: Recorded) {
        self.count += 1;
        let start = recorded.access.elements.range().start;
        let known = self.by_magnitude[Self::magnitude(&recorded)].entry(start).or_default();
        match known.iter_mut().find(|(known, _)| *known == recorded) {
            Some((_, count)) => *count += 1,
            None => known.push((recorded, 1)),
        }
    }

    /// Removes an access. Returns whether it was recorded.
    fn remove(&mut self, recorded: &Recorded) -> bool {
        let start = recorded.access.elements.range().start;
        let accesses = &mut self.by_magnitude[Self::magnitude(recorded)];
        let Entry::Occupied(mut entry) = accesses.entry(start) else { return false };
        let known = entry.get_mut();
        let Some(at) = known.iter().position(|(known, _)| known == recorded) else { return false };
        self.count -= 1;
        known[at].1 -= 1;
        if known[at].1 == 0 {
            known.swap_remove(at);
        }
        if known.is_empty() {
            entry.remove();
        }
        true
    }

    fn all(&self) -> impl Iterator<Item = Recorded> {
        let known = self.by_magnitude.iter().flat_map(BTreeMap::values).flatten();
        known.flat_map(|(recorded, count)| core::iter::repeat_n(*recorded, *count))
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

    /// Runs `change` while no access begins or ends.
    #[cfg(any(feature = "python", test))]
    pub(crate) fn between_accesses(&self, change: impl FnOnce()) {
        self.with_locks(&(0..usize::MAX), |_| change());
    }

    /// Records an access. `elsewhere` may record it in another table.
    ///
    /// # Errors
    ///
    /// An access with which it conflicts.
    pub(crate) fn begin(
        &self,
        recorded: Recorded,
        elsewhere: impl FnOnce() -> Option<Result<Recorded, Recorded>>,
    ) -> Result<Recorded, Recorded> {
        let access = &recorded.access;
        self.with_locks(&access.elements.range(), |pieces| {
            if let Some(other) = pieces.iter().find_map(|accesses| accesses.conflicting(access, |_| true)) {
                return Err(other);
            }
            elsewhere().unwrap_or_else(|| {
                for accesses in pieces {
                    accesses.add(recorded);
                }
                OPEN_ON_DEVICES.fetch_add(access.by_device as usize, Ordering::SeqCst);
                Ok(recorded)
            })
        })
    }

    /// Compares an access with those by devices, and records nothing. Views of the host do not count: whoever asks goes on
    /// after the call, as another library does.
    ///
    /// # Errors
    ///
    /// An access with which it conflicts.
    pub(crate) fn ask(&self, access: &Access) -> Result<(), Recorded> {
        self.with_locks(&access.elements.range(), |pieces| {
            let by_device = |near: &Access| near.by_device != 0;
            pieces.iter().find_map(|accesses| accesses.conflicting(access, by_device)).map_or(Ok(()), Err)
        })
    }

    pub(crate) fn end(&self, recorded: &Recorded) {
        self.with_locks(&recorded.access.elements.range(), |pieces| {
            let mut was_recorded = false;
            for accesses in pieces {
                was_recorded |= accesses.remove(recorded);
            }
            if was_recorded {
                OPEN_ON_DEVICES.fetch_sub(recorded.access.by_device as usize, Ordering::SeqCst);
            }
        });
    }

    /// Ends all accesses to a range.
    pub(crate) fn forget(&self, range: &Range<usize>) {
        let all = Access::by_host(Elements::contiguous(range.clone()), true);
        let any = || {
            self.with_locks(range, |pieces| {
                pieces.iter().find_map(|accesses| accesses.conflicting(&all, |_| true))
            })
        };
        while let Some(recorded) = any() {
            // Behind all locks of the access, which may touch more pieces than the range does.
            self.end(&recorded);
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(all(unix, not(miri)))]
    use std::thread;

    use super::*;
    #[cfg(all(unix, not(miri)))]
    use crate::process::fork::PerProcess;
    #[cfg(all(unix, not(miri)))]
    use crate::process::fork::child::in_a_child;

    /// A table of its own, so that no other test is in it.
    fn table() -> AccessTable {
        AccessTable::after_fork(None)
    }

    fn begin(table: &AccessTable, access: Access) -> Option<Recorded> {
        table.begin(Recorded::by_this_thread(access), || None).ok()
    }

    fn write(table: &AccessTable, range: Range<usize>) -> Option<Recorded> {
        begin(table, Access::by_host(Elements::contiguous(range), true))
    }

    fn is_empty(table: &AccessTable) -> bool {
        table.0.iter().all(|accesses| {
            let Accesses { few, many } = &*accesses.lock().unwrap();
            few.is_empty() && many.count == 0 && many.by_magnitude.iter().all(BTreeMap::is_empty)
        })
    }

    /// With few accesses at a time and with many, so that they move between the list and the maps.
    #[test]
    fn random_accesses_are_judged_as_by_a_list() {
        let (table, mut held, mut state) = (table(), Vec::<Recorded>::new(), 1_u64);
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let turns = if cfg!(miri) { 100 } else { 20_000 };
        for turn in 0..turns {
            // First more accesses begin than end, then the other way round.
            let ends = if turn * 4 / turns % 2 == 0 { random(3) == 0 } else { random(3) != 0 };
            if ends && !held.is_empty() {
                let recorded = held.swap_remove(random(held.len()));
                table.end(&recorded);
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
                stream => Access::by_device(elements, writes, StreamKey { handle: stream - 1, context: 0 }),
            };
            let conflicts = |other: &Recorded| other.access.conflicts(&access);
            let on_device = |other: &Recorded| other.access.by_device != 0;
            let is_free = !held.iter().any(conflicts);
            let is_free_of_devices = !held.iter().filter(|other| on_device(other)).any(conflicts);
            assert_eq!(table.ask(&access).is_ok(), is_free_of_devices, "{access:?} beside {held:?}");
            let result = begin(&table, access);
            assert_eq!(result.is_some(), is_free, "{access:?} beside {held:?}");
            held.extend(result);
        }
        for recorded in &held {
            table.end(recorded);
        }
        assert!(is_empty(&table));
    }

    #[test]
    fn accesses_on_one_stream_do_not_conflict() {
        let on = |handle, context| StreamKey { handle, context };
        let write = |on| Access::by_device(Elements::contiguous(64..128), true, on);
        let by_host = Access::by_host(Elements::contiguous(64..128), false);
        for (other, conflicts) in [
            (write(on(8, 0)), false),
            (write(on(16, 0)), true),
            (write(on(8, 1)), true),
            (write(StreamKey::NONE), true),
            (by_host, true),
        ] {
            let table = table();
            let first = begin(&table, write(on(8, 0))).unwrap();
            assert_eq!(table.ask(&other).is_err(), conflicts, "{other:?}");
            let second = begin(&table, other);
            assert_eq!(second.is_none(), conflicts, "{other:?}");
            second.into_iter().chain([first]).for_each(|recorded| table.end(&recorded));
            assert!(is_empty(&table));
        }
        // Neither the host nor a stream that is not known is ordered with another one like it.
        for unordered in [write(StreamKey::NONE), Access { writes: 1, ..by_host }] {
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
                if let Some(recorded) = write(&table, 4096..4096 + length) {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    table.end(&recorded);
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
        thread::scope(|scope| assert_ne!(scope.spawn(|| hold(800)).join().unwrap().thread, own.thread));
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
