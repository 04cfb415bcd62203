//! Many accesses, in the order of their addresses.

use core::iter::repeat_n;
use core::ops::Range;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::order::record::access::{Recorded, Ticket};

/// The accesses that begin at each address, and how many there are with one number.
type ByStart = BTreeMap<usize, Vec<(Recorded, usize)>>;

/// Each magnitude has accesses up to so many times the length of the one before, as a number of bits. So only the
/// magnitudes with long accesses are searched far before an address.
const BITS: u32 = 6;

/// Accesses in the order of their addresses, in a map for each magnitude.
#[derive(Default)]
pub(crate) struct ManyAccesses {
    by_magnitude: [ByStart; usize::BITS.div_ceil(BITS) as usize + 1],
    count: usize,
}

/// The index of the map that an access to this range is in.
fn magnitude(range: &Range<usize>) -> usize {
    (usize::BITS - range.len().saturating_sub(1).leading_zeros()).div_ceil(BITS) as usize
}

impl ManyAccesses {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first access that `is_met` and may touch this range.
    pub(crate) fn near(&self, range: &Range<usize>, is_met: impl Fn(&Recorded) -> bool) -> Option<&Recorded> {
        let maps = (0..).zip(&self.by_magnitude).filter(|(_, accesses)| !accesses.is_empty());
        let mut near = maps.flat_map(|(magnitude, accesses): (u32, _)| {
            let longest = 1_usize.checked_shl(BITS * magnitude).unwrap_or(usize::MAX);
            let first = range.start.saturating_sub(longest);
            accesses.range(..range.end).rev().take_while(move |(start, _)| **start >= first)
        });
        near.find_map(|(_, near)| near.iter().map(|(near, _)| near).find(|near| is_met(near)))
    }

    /// Adds an access, or counts it with an equal one by the same thread, which stands for both. Returns its number.
    pub(crate) fn begin(&mut self, new: Recorded) -> u64 {
        self.count_with(new, |known| known.thread == new.thread && known.access == new.access)
    }

    /// Adds an access that has its number.
    pub(crate) fn add(&mut self, new: Recorded) {
        self.count_with(new, |known| known.number == new.number);
    }

    fn count_with(&mut self, new: Recorded, is_same: impl Fn(&Recorded) -> bool) -> u64 {
        self.count += 1;
        let range = new.access.elements.range();
        let known = self.by_magnitude[magnitude(&range)].entry(range.start).or_default();
        if let Some((same, count)) = known.iter_mut().find(|(known, _)| is_same(known)) {
            *count += 1;
            return same.number;
        }
        known.push((new, 1));
        new.number
    }

    /// Removes an access. Returns it if it was there.
    pub(crate) fn remove(&mut self, ticket: &Ticket) -> Option<Recorded> {
        let range = ticket.range();
        let accesses = &mut self.by_magnitude[magnitude(&range)];
        let Entry::Occupied(mut entry) = accesses.entry(range.start) else { return None };
        let known = entry.get_mut();
        let at = known.iter().position(|(known, _)| known.number == ticket.number)?;
        self.count -= 1;
        known[at].1 -= 1;
        let recorded = known[at].0;
        if known[at].1 == 0 {
            known.swap_remove(at);
        }
        if known.is_empty() {
            entry.remove();
        }
        Some(recorded)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Recorded> {
        let known = self.by_magnitude.iter().flat_map(BTreeMap::values).flatten();
        known.flat_map(|(recorded, count)| repeat_n(*recorded, *count))
    }
}
