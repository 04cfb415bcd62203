//! Which bytes an array has, for a comparison with those of another.

use core::ops::Range;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
