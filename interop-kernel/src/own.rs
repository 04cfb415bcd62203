//! The indices of the elements that a thread owns.

use core::fmt;
use core::marker::PhantomData;
#[cfg(not(target_arch = "nvptx64"))]
use core::ops::Range;

#[cfg(not(target_arch = "nvptx64"))]
use crate::host_part::OpenLoops;
use crate::index::{Index, OfThread};
use crate::mapping::Mapping;
use crate::thread::Thread;

/// The indices that belong to a thread. [`Thread::elements`] and its siblings make it.
///
/// In a launch on the CPU, a loop over it goes along rows, each without a division or a branch. `for_each` and `fold` are vectorized, too.
pub struct Own<'t, const N: usize, M> {
    next: u64,
    step: u64,
    count: u64,
    /// The numbers of units along each axis.
    units: [usize; N],
    shape: [usize; N],
    /// In a launch on the CPU, the loops that the thread has begun. Then the units are neighbours.
    #[cfg(not(target_arch = "nvptx64"))]
    loops: Option<OpenLoops<'t>>,
    /// The units before `next` that are left of those which have been taken: a run along the last axis.
    #[cfg(not(target_arch = "nvptx64"))]
    run: Range<usize>,
    /// Where the run is along the other axes.
    #[cfg(not(target_arch = "nvptx64"))]
    at: [usize; N],
    marker: PhantomData<OfThread<'t, M>>,
}

impl<'t, const N: usize, M: Mapping<N>> Own<'t, N, M> {
    #[inline(always)]
    pub(crate) fn new(thread: &'t Thread<'_>, shape: [usize; N]) -> Self {
        let units = M::units(shape);
        // If one extent is 0, the product of the others may be any number.
        let count = units.iter().fold(1_u64, |count, extent| count.wrapping_mul(*extent as u64));
        let is_empty = units.contains(&0);
        let count = if is_empty { 0 } else { count };
        #[cfg(not(target_arch = "nvptx64"))]
        if let Some(part) = thread.host_part() {
            let Range { start, end } = part.units(count);
            let at = indices_of(start, units);
            let run = at.last().map_or(0..0, |at| *at..*at);
            let own = Self {
                next: start,
                step: 1,
                count: end,
                units,
                shape,
                loops: Some(part.loops),
                run,
                at,
                marker: PhantomData,
            };
            own.begin_loop();
            return own;
        }
        Self {
            next: thread.number(),
            step: thread.threads(),
            count,
            units,
            shape,
            #[cfg(not(target_arch = "nvptx64"))]
            loops: None,
            #[cfg(not(target_arch = "nvptx64"))]
            run: 0..0,
            #[cfg(not(target_arch = "nvptx64"))]
            at: [0; N],
            marker: PhantomData,
        }
    }
}

impl<'t, const N: usize, M: Mapping<N>> Iterator for Own<'t, N, M> {
    type Item = Index<'t, N, M>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        #[cfg(not(target_arch = "nvptx64"))]
        loop {
            if let Some(along) = self.run.next() {
                return Some(self.index(along));
            }
            if !self.next_run() {
                return None;
            }
        }
        #[cfg(target_arch = "nvptx64")]
        {
            if self.next >= self.count {
                return None;
            }
            let unit = indices_of(self.next, self.units);
            // Threads and elements have fewer than 2^64 numbers together, but not by much.
            self.next = self.next.saturating_add(self.step);
            Some(Index::new(M::first(unit), self.shape))
        }
    }

    /// Goes along rows. The function is called in one place, so that it is inlined there.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold<A, F: FnMut(A, Self::Item) -> A>(mut self, start: A, mut function: F) -> A {
        let mut folded = start;
        loop {
            for along in self.run.clone() {
                folded = function(folded, self.index(along));
            }
            if !self.next_run() {
                return folded;
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'t, const N: usize, M: Mapping<N>> Own<'t, N, M> {
    /// The index of a unit of the run.
    #[inline(always)]
    fn index(&self, along: usize) -> Index<'t, N, M> {
        let mut unit = self.at;
        if let Some(last) = unit.last_mut() {
            *last = along;
        }
        Index::new(M::first(unit), self.shape)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<const N: usize, M> Own<'_, N, M> {
    /// Goes to the next run, and returns whether there is one: of a part all units up to the end of the row, otherwise one.
    #[inline(always)]
    fn next_run(&mut self) -> bool {
        if let Some(loops) = self.loops {
            let Self { next, count, units, at, ref run, .. } = *self;
            (self.at, self.run) = run_after(Taken { at, end: run.end, units, left: count - next, loops });
            self.next += self.run.len() as u64;
            return !self.run.is_empty();
        }
        if self.next >= self.count {
            return false;
        }
        self.at = indices_of(self.next, self.units);
        self.run = self.at.last().map_or(0..1, |at| *at..*at + 1);
        self.next = self.next.saturating_add(self.step);
        true
    }

    /// Notes that a loop over the units that are left begins.
    #[inline(always)]
    fn begin_loop(&self) {
        if let (Some(loops), true) = (self.loops, self.next < self.count || !self.run.is_empty()) {
            loops.begin();
        }
    }
}

/// The units that a loop over a part has taken: up to `end` of the row at these indices, so that as many are left.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
struct Taken<'t, const N: usize> {
    at: [usize; N],
    end: usize,
    units: [usize; N],
    left: u64,
    loops: OpenLoops<'t>,
}

/// Returns the next run, and where it is: an empty one at the end. The last unit is a run of its own, so that the end of a loop is noted when
/// it is taken.
///
/// It is out of line and by value. So a `for` loop has nothing but a comparison beside the work, and its variables are in registers. It is not
/// cold: all of a loop leads to it, and the compiler inlines less into code that leads to a cold call.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(never)]
fn run_after<const N: usize>(taken: Taken<'_, N>) -> ([usize; N], Range<usize>) {
    let Taken { mut at, end, units, left, loops } = taken;
    if left == 0 {
        return (at, end..end);
    }
    if let Some(last) = at.last_mut() {
        *last = end;
    }
    for axis in (1..N).rev() {
        if at[axis] == units[axis] {
            at[axis] = 0;
            at[axis - 1] += 1;
        }
    }
    if left == 1 {
        loops.end();
    }
    let first = at.last().copied().unwrap_or(0);
    let row = units.last().map_or(1, |extent| extent - first);
    let len = usize::try_from(left - 1).map_or(row, |others| row.min(others.max(1)));
    (at, first..first + len)
}

impl<const N: usize, M> Clone for Own<'_, N, M> {
    fn clone(&self) -> Self {
        let own = Self {
            #[cfg(not(target_arch = "nvptx64"))]
            run: self.run.clone(),
            ..*self
        };
        // The copy has to come to its end, too.
        #[cfg(not(target_arch = "nvptx64"))]
        own.begin_loop();
        own
    }
}

impl<const N: usize, M> fmt::Debug for Own<'_, N, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { next, step, count, shape, .. } = self;
        let mut own = f.debug_struct("Own");
        own.field("next", next).field("step", step).field("count", count).field("shape", shape).finish()
    }
}

/// Returns the indices of a number in row-major order. Few numbers have more than 32 bits, and a device divides numbers
/// of 32 bits many times faster.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "compared before, or below an extent")]
fn indices_of<const N: usize>(mut number: u64, shape: [usize; N]) -> [usize; N] {
    let mut at = [0; N];
    let mut axis = N;
    while axis > 1 {
        axis -= 1;
        let extent = shape[axis] as u64;
        let rest = if (number | extent) >> 32 == 0 {
            u64::from((number as u32).checked_div(extent as u32).unwrap_or(0))
        } else {
            number.checked_div(extent).unwrap_or(0)
        };
        at[axis] = (number - rest * extent) as usize;
        number = rest;
    }
    if N > 0 {
        at[0] = number as usize;
    }
    at
}
