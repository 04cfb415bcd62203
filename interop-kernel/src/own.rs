//! The indices of the elements that a thread owns.

use core::fmt;
use core::marker::PhantomData;

#[cfg(not(target_arch = "nvptx64"))]
use crate::host_part::HostPart;
use crate::index::{Index, OfThread};
use crate::mapping::Mapping;
use crate::thread::Thread;

/// The indices that belong to a thread. [`Thread::elements`] and its siblings make it.
///
/// In a launch on the CPU, `for_each` and `fold` are loops over rows, which the compiler vectorizes. A `for` loop over two axes or more takes
/// longer there, because it finds the end of a row at each element.
pub struct Own<'t, const N: usize, M> {
    next: u64,
    step: u64,
    count: u64,
    /// The numbers of units along each axis.
    units: [usize; N],
    shape: [usize; N],
    /// The part of a launch on the CPU. Then the units are neighbours.
    #[cfg(not(target_arch = "nvptx64"))]
    part: Option<HostPart<'t>>,
    /// The next unit, if there is a part.
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
            let own = part.units(count);
            part.begin_loop(&own);
            let at = indices_of(own.start, units);
            let (next, count) = (own.start, own.end);
            return Self { next, step: 1, count, units, shape, part: Some(part), at, marker: PhantomData };
        }
        Self {
            next: thread.number(),
            step: thread.threads(),
            count,
            units,
            shape,
            #[cfg(not(target_arch = "nvptx64"))]
            part: None,
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
        if self.part.is_some() {
            let unit = (self.next < self.count).then_some(self.at)?;
            self.advance(1);
            return Some(Index::new(M::first(unit), self.shape));
        }
        if self.next >= self.count {
            return None;
        }
        let unit = indices_of(self.next, self.units);
        // Threads and elements have fewer than 2^64 numbers together, but not by much.
        self.next = self.next.saturating_add(self.step);
        Some(Index::new(M::first(unit), self.shape))
    }

    /// Goes along rows. The function is called in one place, so that it is inlined there.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold<A, F: FnMut(A, Self::Item) -> A>(mut self, start: A, mut function: F) -> A {
        let mut folded = start;
        while let Some((first, count)) = self.next_units() {
            for along in 0..count {
                let mut unit = first;
                if let Some(last) = unit.last_mut() {
                    *last += along;
                }
                folded = function(folded, Index::new(M::first(unit), self.shape));
            }
        }
        folded
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<const N: usize, M: Mapping<N>> Own<'_, N, M> {
    /// Takes units that are next to each other along the last axis: of a part all up to the end of the row, otherwise one. Returns the first,
    /// and their number.
    #[inline(always)]
    fn next_units(&mut self) -> Option<([usize; N], usize)> {
        if self.next >= self.count {
            return None;
        }
        if self.part.is_none() {
            let unit = indices_of(self.next, self.units);
            self.next = self.next.saturating_add(self.step);
            return Some((unit, 1));
        }
        let (first, left) = (self.at, self.count - self.next);
        let row = first.last().zip(self.units.last()).map_or(1, |(at, extent)| extent - at);
        let count = usize::try_from(left).map_or(row, |left| row.min(left));
        self.advance(count);
        Some((first, count))
    }

    /// Takes units of a part, which the row has, without a division.
    #[inline(always)]
    fn advance(&mut self, count: usize) {
        self.next += count as u64;
        if let (true, Some(part)) = (self.next == self.count, self.part) {
            part.end_loop();
        }
        let mut step = count;
        for (axis, (at, extent)) in self.at.iter_mut().zip(&self.units).enumerate().rev() {
            *at += step;
            if *at < *extent || axis == 0 {
                break;
            }
            (*at, step) = (0, 1);
        }
    }
}

impl<const N: usize, M> Clone for Own<'_, N, M> {
    fn clone(&self) -> Self {
        #[cfg(not(target_arch = "nvptx64"))]
        if let Some(part) = self.part {
            // The copy has to come to its end, too.
            part.begin_loop(&(self.next..self.count));
        }
        Self { ..*self }
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
