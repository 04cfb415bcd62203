//! Which bytes an array has, for a comparison with those of another.

use core::ops::Range;

/// The bytes of an array, from the lowest to the highest, and the gaps between them.
///
/// The gaps are told by runs at two levels, so that parts of one array have no byte in common: the first columns of each row
/// and the others, or every other row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(crate) struct Elements {
    start: usize,
    end: usize,
    /// The shortest and the longest runs, or one of the whole range.
    runs: [Runs; 2],
}

/// All bytes of an array lie in runs of `len` bytes. The first begins with the array, and the others at distances from it that
/// are multiples of `step` bytes. With a step of 0 there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
struct Runs {
    len: usize,
    step: usize,
}

impl Elements {
    /// Elements without gaps.
    pub(crate) fn contiguous(range: Range<usize>) -> Self {
        let whole = Runs { len: range.len(), step: 0 };
        Self { start: range.start, end: range.end, runs: [whole; 2] }
    }

    /// A number of elements of `item` bytes in a range, along axes with an extent and a stride in bytes.
    #[inline]
    pub(crate) fn of(
        range: Range<usize>,
        count: usize,
        item: usize,
        axes: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Self {
        let has_gaps = count.wrapping_mul(item) != range.len();
        if has_gaps { Self::strided(range, item, axes) } else { Self::contiguous(range) }
    }

    /// Elements of `item` bytes in a range, along axes with an extent and a stride in bytes.
    pub(crate) fn strided(
        range: Range<usize>,
        item: usize,
        axes: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Self {
        let (mut elements, mut found) = (Self::contiguous(range), 0);
        let moving = axes.filter(|(extent, stride)| *extent > 1 && *stride != 0);
        // Axes with smaller strides lie within a run.
        let mut least = 0;
        loop {
            let (mut runs, mut next) = (Runs { len: item, step: 0 }, usize::MAX);
            for (extent, stride) in moving.clone() {
                if stride < least {
                    runs.len = runs.len.saturating_add((extent - 1).saturating_mul(stride));
                } else {
                    (runs.step, next) = (gcd(runs.step, stride), next.min(stride));
                }
            }
            if runs.step == 0 {
                return elements;
            }
            if runs.len < runs.step {
                elements.runs[found] = runs;
                found = 1;
            }
            least = next.saturating_add(1);
        }
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Whether two arrays may have a byte in common.
    pub(crate) fn overlap(&self, other: &Self) -> bool {
        if self.end <= other.start || other.end <= self.start {
            return false;
        }
        let are_apart = |one: &Runs, two: &Runs| {
            let step = gcd(one.step, two.step);
            if step == 0 {
                return false;
            }
            // Where the runs of `other` begin, within the steps of `self`.
            let offset = (other.start % step + step - self.start % step) % step;
            offset >= one.len && offset.saturating_add(two.len) <= step
        };
        !self.runs.iter().any(|one| other.runs.iter().any(|two| are_apart(one, two)))
    }
}

fn gcd(one: usize, two: usize) -> usize {
    if two == 0 { one } else { gcd(two, one % two) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Items of two bytes, in rows of six or twelve: whether two columns have a byte in common.
    #[test]
    fn columns_are_told_apart() {
        let column = |at: usize, row: usize| {
            Elements::strided(at..at + 10 * row + 2, 2, [(4, row), (3, 3 * row)].into_iter())
        };
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

    /// A part of an array: an index range and a step for each axis.
    #[derive(Clone, Copy, Debug)]
    struct Part([(usize, usize, usize); 3]);

    /// The strides of an array with the shape 4, 6, 8 and items of two bytes.
    const STRIDES: [usize; 3] = [96, 16, 2];

    impl Part {
        /// The lowest address of each item.
        fn items(&self) -> Vec<usize> {
            let axis = |at: usize| {
                let (first, end, step) = self.0[at];
                (first..end).step_by(step).map(move |index| index * STRIDES[at])
            };
            axis(0).flat_map(|a| axis(1).flat_map(move |b| axis(2).map(move |c| 1000 + a + b + c))).collect()
        }

        fn elements(&self) -> Elements {
            let items = self.items();
            let axes = self.0.iter().zip(STRIDES);
            let axes =
                axes.map(|((first, end, step), stride)| ((end - first).div_ceil(*step), stride * step));
            Elements::strided(items[0]..items[items.len() - 1] + 2, 2, axes)
        }

        fn bytes(&self) -> BTreeSet<usize> {
            self.items().into_iter().flat_map(|item| [item, item + 1]).collect()
        }
    }

    fn parts(extent: usize) -> impl Iterator<Item = (usize, usize, usize)> + Clone {
        (0..extent).flat_map(move |first| {
            (first + 1..=extent).flat_map(move |end| (1..=3).map(move |step| (first, end, step)))
        })
    }

    /// Parts that share a byte are never taken for apart, and parts along one axis are told apart.
    #[test]
    fn parts_of_an_array_are_told_apart() {
        let along = |axis: usize| {
            let whole = [(0, 4, 1), (0, 6, 1), (0, 8, 1)];
            parts([4, 6, 8][axis]).map(move |part| {
                let mut part_of = whole;
                part_of[axis] = part;
                (Part(part_of), Part(part_of).bytes())
            })
        };
        for axis in 0..3 {
            let all: Vec<_> = along(axis).step_by(if cfg!(miri) { 11 } else { 1 }).collect();
            for ((one, bytes), (two, other)) in
                all.iter().flat_map(|one| all.iter().map(move |two| (one, two)))
            {
                let (share, overlap) = (!bytes.is_disjoint(other), one.elements().overlap(&two.elements()));
                assert!(overlap || !share, "{one:?} {two:?}");
                let are_blocks = one.0[axis].2 == 1 && two.0[axis].2 == 1;
                assert!(!are_blocks || overlap == share, "{one:?} {two:?}");
            }
        }
        let mixed = |seed: usize| {
            let axis = |at: usize, extent: usize| {
                let parts: Vec<_> = parts(extent).collect();
                parts[(seed * 7919 + at * 104_729) % 65_537 % parts.len()]
            };
            Part([axis(0, 4), axis(1, 6), axis(2, 8)])
        };
        for seed in 0..if cfg!(miri) { 50 } else { 2000 } {
            let (one, two) = (mixed(seed), mixed(3 * seed + 1));
            let share = !one.bytes().is_disjoint(&two.bytes());
            assert!(one.elements().overlap(&two.elements()) || !share, "{one:?} {two:?}");
        }
    }

    /// The halves of each row of an array that `rotate_half` reads and writes, also of some rows only.
    #[test]
    fn halves_of_rows_are_apart() {
        let half = |rows: (usize, usize), columns: (usize, usize)| {
            Part([(0, 4, 1), (rows.0, rows.1, 1), (columns.0, columns.1, 1)]).elements()
        };
        for (one, two) in [
            (half((0, 6), (0, 4)), half((0, 6), (4, 8))),
            (half((0, 3), (0, 4)), half((0, 3), (4, 8))),
            (half((0, 3), (0, 4)), half((3, 6), (0, 4))),
            (half((0, 3), (0, 8)), half((3, 6), (4, 8))),
        ] {
            assert_eq!((one.overlap(&two), two.overlap(&one)), (false, false), "{one:?} {two:?}");
        }
        assert!(half((0, 4), (0, 5)).overlap(&half((3, 6), (4, 8))));
    }
}
