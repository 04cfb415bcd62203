//! Where an access to a range of addresses is recorded: in granules, which are spread over stripes.

use core::hash::Hasher;
use core::ops::Range;

/// The level of a granule, and its number among those of its level.
pub(crate) type Key = u64;

/// Spreads keys over the stripes, and over the places of a map.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let product = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) const STRIPES: usize = 64;

/// The level for ranges of this length. At most sixteen of them fit into a granule without overlapping: the granules of
/// level 0 have 64 bytes, those of the next level sixteen times as many, and so on.
pub(crate) fn level_of(range: &Range<usize>) -> u32 {
    let bits = usize::BITS - range.len().saturating_sub(1).leading_zeros();
    bits.saturating_sub(6).div_ceil(4)
}

pub(crate) fn stripe_of(key: Key) -> usize {
    let mut mix = Mix::default();
    mix.write_u64(key);
    (mix.finish() >> 20) as usize % STRIPES
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
    /// Their stripes, one bit each.
    pub(crate) stripes: u64,
}

impl Keys {
    /// If a range touches more granules, all stripes are locked.
    const MOST: usize = 40;

    pub(crate) const NONE: Self = Self { list: [0; Self::MOST], len: 0, stripes: 0 };

    /// Adds the granules of these levels. Returns `false` if they are too many.
    pub(crate) fn fill(&mut self, range: &Range<usize>, mut levels: u32) -> bool {
        (self.len, self.stripes) = (0, 0);
        while levels != 0 {
            let level = levels.trailing_zeros();
            let (first, last) = granules(range, level);
            if last - first >= Self::MOST - self.len {
                return false;
            }
            for number in first..=last {
                let key = key(level, number);
                self.list[self.len] = key;
                self.len += 1;
                self.stripes |= 1 << stripe_of(key);
            }
            levels &= levels - 1;
        }
        true
    }

    /// Those in a stripe.
    pub(crate) fn of_stripe(&self, number: usize) -> impl Iterator<Item = Key> + '_ {
        self.list[..self.len].iter().copied().filter(move |key| stripe_of(*key) == number)
    }
}
