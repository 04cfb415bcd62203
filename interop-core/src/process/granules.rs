//! Where an access to a range of addresses is recorded: in granules, which are spread over stripes.

use core::ops::Range;

/// The level of a granule, and its number among those of its level.
pub(crate) type Key = u64;

pub(crate) const STRIPES: usize = 64;

/// The number of lists in a stripe.
pub(crate) const LISTS: usize = 16;

/// The level for ranges of this length. At most sixteen of them fit into a granule without overlapping: the granules of
/// level 0 have 64 bytes, those of the next level sixteen times as many, and so on.
pub(crate) fn level_of(range: &Range<usize>) -> u32 {
    let bits = usize::BITS - range.len().saturating_sub(1).leading_zeros();
    bits.saturating_sub(6).div_ceil(4)
}

fn spread(key: Key) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

pub(crate) fn stripe_of(key: Key) -> usize {
    spread(key) % STRIPES
}

pub(crate) fn list_of(key: Key) -> usize {
    spread(key) / STRIPES % LISTS
}

/// The numbers of the first and of the last granule that a range touches.
fn granules(range: &Range<usize>, level: u32) -> (usize, usize) {
    let number = |address: usize| address.checked_shr(6 + 4 * level).unwrap_or(0);
    (number(range.start), number(range.end.max(range.start + 1) - 1))
}

fn key(level: u32, number: usize) -> Key {
    (number as u64) << 4 | u64::from(level)
}

/// The granules of an access to this range: two, which may be the same.
pub(crate) fn own_keys(range: &Range<usize>) -> [Key; 2] {
    let level = level_of(range);
    let (first, last) = granules(range, level);
    [key(level, first), key(level, last)]
}

/// The granules that a range touches.
pub(crate) struct Keys {
    list: [Key; Self::MOST],
    len: usize,
    /// Whether they are too many for the list. Then all stripes are locked.
    pub(crate) are_all: bool,
    /// Their stripes, one bit each.
    pub(crate) stripes: u64,
}

impl Keys {
    const MOST: usize = 40;

    pub(crate) const NONE: Self = Self { list: [0; Self::MOST], len: 0, are_all: false, stripes: 0 };

    /// Sets the granules to those of these levels.
    pub(crate) fn fill(&mut self, range: &Range<usize>, mut levels: u32) {
        (self.len, self.are_all, self.stripes) = (0, false, 0);
        while levels != 0 {
            let level = levels.trailing_zeros();
            let (first, last) = granules(range, level);
            if last - first >= Self::MOST - self.len {
                (self.len, self.are_all, self.stripes) = (0, true, u64::MAX);
                return;
            }
            for number in first..=last {
                let key = key(level, number);
                self.list[self.len] = key;
                self.len += 1;
                self.stripes |= 1 << stripe_of(key);
            }
            levels &= levels - 1;
        }
    }

    /// Those in a stripe. None if they are all.
    pub(crate) fn of_stripe(&self, number: usize) -> impl Iterator<Item = Key> + '_ {
        self.list[..self.len].iter().copied().filter(move |key| stripe_of(*key) == number)
    }
}
