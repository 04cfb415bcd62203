//! The order in which one to three arrays of one shape are walked together: axes sorted by stride and merged.

use core::cmp::Reverse;

use crate::array::dims::Dims;
use crate::array::layout::order::Order;

/// The most arrays that are walked together.
pub(crate) const MOST: usize = 3;

/// How far each array steps along an axis, in elements; 0 for arrays that are not there.
pub(crate) type Steps = [isize; MOST];

/// The steps of the second and of the inner loop in a tile, in which arrays of opposite memory orders meet. The inner ones are
/// few: where the strides are powers of two, the elements that they lead to share a place in the cache.
const TILE: (usize, usize) = (512, 16);

/// In which order elements are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// Whatever lies next to one another in the first array, from the lowest address on. Arrays that lie in another order
    /// than the first are walked in tiles.
    MemoryRegion,
    /// As the indices count.
    Index(Order),
}

/// One loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: usize,
    pub(crate) steps: Steps,
}

impl Axis {
    /// A loop that runs once.
    const ONCE: Self = Self { extent: 1, steps: [0; MOST] };

    /// The steps from the first index to this one.
    #[inline]
    pub(crate) fn to(&self, index: usize) -> Steps {
        self.steps.map(|step| step.wrapping_mul(index as isize))
    }
}

/// The two inner loops, from these offsets on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    pub(crate) first: Steps,
    pub(crate) rows: Axis,
    pub(crate) run: Axis,
}

/// Loops over all elements; none of them runs zero times.
#[derive(Clone, Debug)]
pub(crate) struct Loops {
    /// From the outermost to the innermost; those behind `ndim` are unused.
    axes: Dims<Axis>,
    ndim: usize,
    /// The offset of the element that is visited first, in each array.
    first: Steps,
    /// Whether the two inner loops run in tiles.
    tiled: bool,
}

#[inline]
fn sum(offsets: Steps, steps: Steps) -> Steps {
    core::array::from_fn(|array| offsets[array].wrapping_add(steps[array]))
}

impl Loops {
    /// The loops over arrays of this shape, given the strides of each in elements; `None` without elements.
    #[inline]
    pub(crate) fn new(shape: &[usize], strides: &[&[isize]], visit: Visit) -> Option<Self> {
        if shape.contains(&0) {
            return None;
        }
        let mut loops = Self::in_index_order(shape, strides, visit == Visit::Index(Order::F));
        if visit == Visit::MemoryRegion && loops.ndim > 0 {
            loops.turn_forward();
            loops.axes[..loops.ndim].sort_by_key(|axis| Reverse(reach(axis)));
        }
        loops.merge();
        if visit == Visit::MemoryRegion && strides.len() > 1 {
            loops.tile();
        }
        Some(loops)
    }

    fn in_index_order(shape: &[usize], strides: &[&[isize]], reversed: bool) -> Self {
        let (mut axes, mut ndim) = (Dims::zeroed(shape.len().max(1)), 0);
        for step in 0..shape.len() {
            let at = if reversed { shape.len() - 1 - step } else { step };
            if shape[at] != 1 {
                let steps = core::array::from_fn(|array| strides.get(array).map_or(0, |steps| steps[at]));
                axes[ndim] = Axis { extent: shape[at], steps };
                ndim += 1;
            }
        }
        Self { axes, ndim, first: [0; MOST], tiled: false }
    }

    /// Walks each axis in the direction in which the first array that moves along it goes up.
    fn turn_forward(&mut self) {
        for axis in &mut self.axes[..self.ndim] {
            if axis.steps.iter().find(|step| **step != 0).is_some_and(|step| *step < 0) {
                self.first = sum(self.first, axis.to(axis.extent - 1));
                axis.steps = axis.steps.map(isize::wrapping_neg);
            }
        }
    }

    /// Makes one loop of two where the outer goes on where the inner ends, in all arrays.
    fn merge(&mut self) {
        if self.ndim == 0 {
            self.axes[0] = Axis::ONCE;
            self.ndim = 1;
        }
        let mut last = 0;
        for at in 1..self.ndim {
            let (outer, inner) = (self.axes[last], self.axes[at]);
            if outer.steps == inner.to(inner.extent) {
                self.axes[last] = Axis { extent: outer.extent * inner.extent, ..inner };
            } else {
                last += 1;
                self.axes[last] = inner;
            }
        }
        self.ndim = last + 1;
    }

    /// Where an array has its elements next to one another along another axis than the first array has, makes that the
    /// second loop, and has the two run in tiles.
    fn tile(&mut self) {
        let inner = self.ndim - 1;
        for array in 1..MOST {
            let step = |axis: &Axis| axis.steps[array].unsigned_abs();
            let others = self.axes[..inner].iter().enumerate().filter(|(_, axis)| step(axis) != 0);
            let Some((at, nearest)) = others.min_by_key(|(_, axis)| step(axis)) else { continue };
            if step(nearest) < step(&self.axes[inner]) {
                self.axes[at..inner].rotate_left(1);
                self.tiled = true;
                return;
            }
        }
    }

    /// The loops in two parts, cut across the outermost one that runs more than once. There is more than one element.
    #[cfg(feature = "rayon")]
    pub(crate) fn halves(mut self) -> (Self, Self) {
        let at = self.axes[..self.ndim].iter().position(|axis| axis.extent > 1).unwrap_or(0);
        let half = self.axes[at].extent / 2;
        let mut rest = self.clone();
        rest.first = sum(rest.first, rest.axes[at].to(half));
        rest.axes[at].extent -= half;
        self.axes[at].extent = half;
        (self, rest)
    }

    /// The number of elements.
    #[cfg(feature = "rayon")]
    pub(crate) fn count(&self) -> usize {
        self.axes[..self.ndim].iter().map(|axis| axis.extent).product()
    }

    /// Calls `visit` with the two inner loops, for each step of the outer ones, until it fails.
    #[inline]
    pub(crate) fn planes<E>(&self, mut visit: impl FnMut(Plane) -> Result<(), E>) -> Result<(), E> {
        let (outer, inner) = self.axes[..self.ndim].split_at(self.ndim.saturating_sub(2));
        let (rows, run) = match inner {
            [rows, run] => (*rows, *run),
            _ => (Axis::ONCE, inner[0]),
        };
        if outer.is_empty() && !self.tiled {
            return visit(Plane { first: self.first, rows, run });
        }
        let mut index = Dims::<usize>::zeroed(outer.len());
        let mut first = self.first;
        loop {
            let plane = Plane { first, rows, run };
            if self.tiled {
                plane.tiles(&mut visit)?;
            } else {
                visit(plane)?;
            }
            let mut at = outer.len();
            loop {
                let Some(next) = at.checked_sub(1) else { return Ok(()) };
                at = next;
                index[at] += 1;
                first = sum(first, outer[at].steps);
                if index[at] < outer[at].extent {
                    break;
                }
                first = sum(first, outer[at].to(index[at]).map(isize::wrapping_neg));
                index[at] = 0;
            }
        }
    }
}

/// What axes are sorted by: how far each array steps. Those along which an array repeats its elements are the outermost.
fn reach(axis: &Axis) -> [usize; MOST] {
    axis.steps.map(|step| step.unsigned_abs().wrapping_sub(1))
}

impl Plane {
    /// The same loops in tiles.
    fn tiles<E>(self, visit: &mut impl FnMut(Self) -> Result<(), E>) -> Result<(), E> {
        let Self { first, rows, run } = self;
        for row in (0..rows.extent).step_by(TILE.0) {
            let begin = sum(first, rows.to(row));
            let rows = Axis { extent: TILE.0.min(rows.extent - row), ..rows };
            for at in (0..run.extent).step_by(TILE.1) {
                let run_part = Axis { extent: TILE.1.min(run.extent - at), ..run };
                visit(Self { first: sum(begin, run.to(at)), rows, run: run_part })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;

    use super::*;

    fn axes(shape: &[usize], strides: &[&[isize]], visit: Visit) -> (Vec<(usize, Steps)>, Steps, bool) {
        let loops = Loops::new(shape, strides, visit).unwrap();
        let axes = loops.axes[..loops.ndim].iter().map(|axis| (axis.extent, axis.steps)).collect();
        (axes, loops.first, loops.tiled)
    }

    #[test]
    fn axes_are_turned_sorted_and_merged() {
        let memory = |shape: &[usize], strides: &[isize]| axes(shape, &[strides], Visit::MemoryRegion);
        assert_eq!(memory(&[2, 3, 4], &[12, 4, 1]), (vec![(24, [1, 0, 0])], [0; 3], false));
        assert_eq!(memory(&[2, 3, 4], &[1, 2, 6]), (vec![(24, [1, 0, 0])], [0; 3], false), "F order");
        assert_eq!(memory(&[4, 3], &[-3, -1]), (vec![(12, [1, 0, 0])], [-11, 0, 0], false), "backwards");
        assert_eq!(memory(&[4, 1, 3], &[8, 9, 1]).0, [(4, [8, 0, 0]), (3, [1, 0, 0])], "padded rows");
        assert_eq!(memory(&[4, 3], &[1, 0]).0, [(3, [0, 0, 0]), (4, [1, 0, 0])], "repeated elements");
        assert_eq!(memory(&[], &[]).0, [(1, [0; 3])]);
        let index = |strides: &[isize], order| axes(&[2, 3], &[strides], Visit::Index(order)).0;
        assert_eq!(index(&[1, 2], Order::C), [(2, [1, 0, 0]), (3, [2, 0, 0])]);
        assert_eq!(index(&[1, 2], Order::F), [(6, [1, 0, 0])]);
        assert_eq!(index(&[-3, -1], Order::C), [(6, [-1, 0, 0])]);
    }

    #[test]
    fn opposite_orders_meet_in_tiles() {
        let found = axes(&[5, 7, 9], &[&[63, 9, 1], &[1, 5, 35]], Visit::MemoryRegion);
        assert_eq!(found.0, [(7, [9, 5, 0]), (5, [63, 1, 0]), (9, [1, 35, 0])]);
        assert!(found.2);
        assert!(!axes(&[5, 7], &[&[7, 1], &[9, 1]], Visit::MemoryRegion).2);
        assert!(
            !axes(&[5, 7], &[&[7, 1], &[0, 0]], Visit::MemoryRegion).2,
            "a repeated element has no order"
        );
    }

    #[test]
    fn planes_have_all_elements() {
        let (shape, strides) = ([70, 3, 40], [&[120_isize, 40, 1][..], &[1, 70, 210]]);
        let mut seen = vec![0; 70 * 3 * 40];
        let Some(loops) = Loops::new(&shape, &strides, Visit::MemoryRegion) else {
            panic!("it has elements")
        };
        let walked = loops.planes(|Plane { first, rows, run }| {
            for row in 0..rows.extent {
                for at in 0..run.extent {
                    let [here, there, _] = sum(sum(first, rows.to(row)), run.to(at));
                    let index = [here / 120, here / 40 % 3, here % 40];
                    assert_eq!(there, index[0] + 70 * index[1] + 210 * index[2]);
                    seen[here.unsigned_abs()] += 1;
                }
            }
            Ok::<(), Infallible>(())
        });
        assert!(walked.is_ok() && seen.iter().all(|count| *count == 1));
    }
}
