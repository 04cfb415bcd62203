//! Axes of one or two arrays that are walked together: how they are merged, and the offsets of their indices.

use core::ops::Deref;

use crate::array::dims::Dims;

/// The maximum number of arrays.
pub(crate) const MOST: usize = 2;

/// The step of each array along an axis. An array that does not exist has step 0.
pub(crate) type Steps = [isize; MOST];

/// One axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: usize,
    pub(crate) steps: Steps,
}

impl Axis {
    /// An axis with one index.
    pub(crate) const ONCE: Self = Self { extent: 1, steps: [0; MOST] };

    /// Returns the steps from index 0 to `index`.
    #[inline]
    pub(crate) fn to(&self, index: usize) -> Steps {
        self.steps.map(|step| step.wrapping_mul(index as isize))
    }
}

#[inline]
pub(crate) fn sum(offsets: Steps, steps: Steps) -> Steps {
    core::array::from_fn(|array| offsets[array].wrapping_add(steps[array]))
}

/// Merges two adjacent axes if in all arrays the outer one continues where the inner one ends. They are in order from the
/// outermost to the innermost. Returns the number of those that are left.
pub(crate) fn merge(axes: &mut [Axis]) -> usize {
    let mut left = axes.len().min(1);
    for at in 1..axes.len() {
        let (outer, inner) = (axes[left - 1], axes[at]);
        if outer.steps == inner.to(inner.extent) {
            axes[left - 1] = Axis { extent: outer.extent * inner.extent, ..inner };
        } else {
            axes[left] = inner;
            left += 1;
        }
    }
    left
}

/// The offsets of all indices of some axes, in row-major order.
#[derive(Debug)]
pub(crate) struct Offsets<A> {
    axes: A,
    index: Dims<usize>,
    offset: Steps,
    /// The number of offsets that are left.
    pub(crate) left: usize,
}

impl<A: Deref<Target = [Axis]>> Offsets<A> {
    /// Starts with the offset `first`.
    pub(crate) fn new(axes: A, first: Steps) -> Self {
        let left = axes.iter().fold(1_usize, |all, axis| all.saturating_mul(axis.extent));
        Self { index: Dims::zeroed(axes.len()), axes, offset: first, left }
    }
}

impl<A: Deref<Target = [Axis]>> Iterator for Offsets<A> {
    type Item = Steps;

    #[inline]
    fn next(&mut self) -> Option<Steps> {
        self.left = self.left.checked_sub(1)?;
        let offset = self.offset;
        for (index, axis) in self.index.iter_mut().zip(&*self.axes).rev() {
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

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<A: Deref<Target = [Axis]>> ExactSizeIterator for Offsets<A> {}
