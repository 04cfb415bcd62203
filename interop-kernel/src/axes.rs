//! The axes of arrays of one shape, prepared for a walk over all elements: turned, sorted and merged. The loops and copies
//! of `interop-core` and the arguments of elementwise kernels begin with this.
//!
//! In a list of axes the innermost comes first: the one along which a walk takes its single steps.
#![expect(clippy::cast_possible_wrap, reason = "the elements of an array are counted by `isize`")]

use core::ops::{Deref, DerefMut};

/// The maximum number of axes of an array. NumPy 2.0 and later have the same limit.
pub const MAX_NDIM: usize = 64;

/// An axis of `K` arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis<const K: usize> {
    /// The number of indices.
    pub extent: usize,
    /// The step of each array from one index to the next.
    pub steps: [isize; K],
}

impl<const K: usize> Axis<K> {
    /// An axis with one index.
    pub const ONCE: Self = Self { extent: 1, steps: [0; K] };

    /// Returns the steps from index 0 to `index`.
    #[inline]
    #[must_use]
    pub fn to(&self, index: usize) -> [isize; K] {
        self.steps.map(|step| step.wrapping_mul(index as isize))
    }
}

impl<const K: usize> Default for Axis<K> {
    fn default() -> Self {
        Self::ONCE
    }
}

/// Adds steps to the offset of each array.
#[inline]
#[must_use]
pub fn sum<const K: usize>(offsets: [isize; K], steps: [isize; K]) -> [isize; K] {
    core::array::from_fn(|array| offsets[array].wrapping_add(steps[array]))
}

/// Prepares axes for a walk in the memory order of the first array, from its lowest address on; where it does not move, in
/// that of the next one. Returns the offset of the first element in each array, and the number of axes that are left at
/// the beginning of the list.
pub fn arrange<const K: usize>(axes: &mut [Axis<K>]) -> ([isize; K], usize) {
    let first = turn_forward(axes);
    sort(axes);
    (first, merge(axes))
}

/// Reverses each axis along which the first array that moves has a negative step.
fn turn_forward<const K: usize>(axes: &mut [Axis<K>]) -> [isize; K] {
    let mut first = [0; K];
    for axis in axes {
        if axis.steps.iter().find(|step| **step != 0).is_some_and(|step| *step < 0) {
            first = sum(first, axis.to(axis.extent - 1));
            axis.steps = axis.steps.map(isize::wrapping_neg);
        }
    }
    first
}

/// Sorts by the steps. Axes along which an array repeats its elements are the outermost.
fn sort<const K: usize>(axes: &mut [Axis<K>]) {
    let key = |axis: &Axis<K>| axis.steps.map(|step| step.unsigned_abs().wrapping_sub(1));
    // There are few axes, and `core` has no stable sort.
    for end in 1..axes.len() {
        let mut at = end;
        while at > 0 && key(&axes[at - 1]) > key(&axes[at]) {
            axes.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Merges two adjacent axes if in all arrays the outer one continues where the inner one ends.
fn merge<const K: usize>(axes: &mut [Axis<K>]) -> usize {
    let mut left = axes.len().min(1);
    for at in 1..axes.len() {
        let (inner, outer) = (axes[left - 1], axes[at]);
        let goes_on =
            |array: usize| inner.steps[array].checked_mul(inner.extent as isize) == Some(outer.steps[array]);
        if (0..K).all(goes_on) {
            axes[left - 1].extent *= outer.extent;
        } else {
            axes[left] = outer;
            left += 1;
        }
    }
    left
}

/// The offsets of all indices of some axes. The first axis varies fastest.
#[derive(Debug)]
pub struct Offsets<A, I, const K: usize> {
    axes: A,
    index: I,
    offset: [isize; K],
    /// The number of offsets that are left.
    pub left: usize,
}

impl<A: Deref<Target = [Axis<K>]>, I: DerefMut<Target = [usize]>, const K: usize> Offsets<A, I, K> {
    /// Starts with the offset `first`. `index` has a 0 for each axis.
    #[inline]
    pub fn new(axes: A, index: I, first: [isize; K]) -> Self {
        let left = axes.iter().fold(1_usize, |all, axis| all.saturating_mul(axis.extent));
        Self { axes, index, offset: first, left }
    }
}

impl<A: Deref<Target = [Axis<K>]>, I: DerefMut<Target = [usize]>, const K: usize> Iterator
    for Offsets<A, I, K>
{
    type Item = [isize; K];

    #[inline]
    fn next(&mut self) -> Option<[isize; K]> {
        self.left = self.left.checked_sub(1)?;
        let offset = self.offset;
        for (index, axis) in self.index.iter_mut().zip(&*self.axes) {
            // One step past the end of an axis may overflow before the index goes back to 0.
            *index += 1;
            self.offset = sum(self.offset, axis.steps);
            if *index < axis.extent {
                break;
            }
            self.offset = sum(self.offset, axis.to(*index).map(isize::wrapping_neg));
            *index = 0;
        }
        Some(offset)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<A: Deref<Target = [Axis<K>]>, I: DerefMut<Target = [usize]>, const K: usize> ExactSizeIterator
    for Offsets<A, I, K>
{
}

/// Calls `see` with consecutive parts of a walk, of at most this many indices and axes each: with the offset of the part in
/// each array, and its axes.
///
/// # Errors
///
/// That of `see`.
pub fn each_part<E, const K: usize>(
    axes: &[Axis<K>],
    (most_indices, most_axes): (usize, usize),
    mut see: impl FnMut([isize; K], &[Axis<K>]) -> Result<(), E>,
) -> Result<(), E> {
    // A copy adds an axis for the bytes of its runs, and one with a single index.
    const MOST: usize = MAX_NDIM + 2;
    let most_axes = axes.len().min(most_axes);
    let (mut inner, mut indices) = (0, 1_usize);
    while inner < most_axes && indices.saturating_mul(axes[inner].extent) <= most_indices {
        indices *= axes[inner].extent;
        inner += 1;
    }
    let mut index = [0; MOST];
    let Some(cut) = axes[..most_axes].get(inner) else {
        let outer = &axes[inner..];
        let mut offsets = Offsets::new(outer, &mut index[..outer.len()], [0; K]);
        return offsets.try_for_each(|offset| see(offset, &axes[..inner]));
    };
    let mut part = [Axis::ONCE; MOST];
    part[..=inner].copy_from_slice(&axes[..=inner]);
    let piece = piece_of(most_indices / indices);
    let outer = &axes[inner + 1..];
    Offsets::new(outer, &mut index[..outer.len()], [0; K]).try_for_each(|offset| {
        (0..cut.extent).step_by(piece).try_for_each(|start| {
            part[inner].extent = piece.min(cut.extent - start);
            see(sum(offset, cut.to(start)), &part[..=inner])
        })
    })
}

/// Returns the length of the pieces of an axis: a multiple of 64 if possible, so that neighbours stay together.
fn piece_of(most: usize) -> usize {
    const TILE: usize = 64;
    if most > TILE { most - most % TILE } else { most.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(list: &[(usize, [isize; 2])]) -> (Vec<(usize, [isize; 2])>, [isize; 2]) {
        let mut axes: Vec<_> =
            list.iter().map(|(extent, steps)| Axis { extent: *extent, steps: *steps }).collect();
        let (first, left) = arrange(&mut axes);
        (axes[..left].iter().map(|axis| (axis.extent, axis.steps)).collect(), first)
    }

    #[test]
    fn axes_are_turned_sorted_and_merged() {
        assert_eq!(arranged(&[(4, [1, 0]), (3, [4, 0]), (2, [12, 0])]), (vec![(24, [1, 0])], [0; 2]));
        assert_eq!(arranged(&[(4, [6, 0]), (3, [2, 0]), (2, [1, 0])]), (vec![(24, [1, 0])], [0; 2]));
        assert_eq!(arranged(&[(3, [-1, 0]), (4, [-3, 0])]), (vec![(12, [1, 0])], [-11, 0]), "backwards");
        assert_eq!(arranged(&[(3, [-1, 2])]), (vec![(3, [1, -2])], [-2, 4]), "the first array decides");
        assert_eq!(arranged(&[(3, [0, -1])]), (vec![(3, [0, 1])], [0, -2]), "or the next that moves");
        assert_eq!(arranged(&[(3, [0, 1]), (4, [1, 0])]).0, [(4, [1, 0]), (3, [0, 1])], "repeated elements");
        assert_eq!(arranged(&[]), (vec![], [0; 2]));
        let far = isize::MAX / 2 + 1;
        assert_eq!(arranged(&[(4, [far, 0]), (2, [0, 0])]).0.len(), 2, "a product that wraps to 0 is none");
    }

    /// The offsets in both arrays, and the extents, of the parts of a walk over axes with these extents and steps in the
    /// second array. The first one is compact.
    fn parts(shape: &[(usize, isize)], most: usize) -> Vec<(isize, isize, Vec<usize>)> {
        let (mut found, mut axes, mut to) = (Vec::new(), Vec::new(), 1);
        for (extent, from) in shape {
            axes.push(Axis { extent: *extent, steps: [to, *from] });
            to *= *extent as isize;
        }
        let see = |[to, from]: [isize; 2], part: &[Axis<2>]| {
            found.push((from, to, part.iter().map(|axis| axis.extent).collect()));
            Ok::<_, ()>(())
        };
        each_part(&axes, (most, usize::MAX), see).unwrap();
        found
    }

    #[test]
    fn parts_follow_one_another() {
        assert_eq!(parts(&[(3, 2), (2, 1)], 6), [(0, 0, vec![3, 2])], "all of it");
        assert_eq!(
            parts(&[(3, 2), (5, 10)], 6),
            [(0, 0, vec![3, 2]), (20, 6, vec![3, 2]), (40, 12, vec![3, 1])]
        );
        assert_eq!(
            parts(&[(3, -1), (2, 30)], 2),
            [(0, 0, vec![2]), (-2, 2, vec![1]), (30, 3, vec![2]), (28, 5, vec![1])]
        );
        assert_eq!(
            parts(&[(3, 1), (2, 10), (2, 100)], 5),
            [(0, 0, vec![3, 1]), (10, 3, vec![3, 1]), (100, 6, vec![3, 1]), (110, 9, vec![3, 1])]
        );
        assert_eq!(parts(&[], 1), [(0, 0, vec![])], "a single element");
    }
}
