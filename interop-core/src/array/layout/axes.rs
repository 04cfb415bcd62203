//! Axes of one or two arrays that are walked together.

use core::ops::Deref;

pub(crate) use interop_kernel::axes::{arrange, each_part, sum};

use crate::array::dims::Dims;

/// The number of arrays. An array that does not exist has step 0.
pub(crate) const ARRAYS: usize = 2;

/// The step of each array along an axis.
pub(crate) type Steps = [isize; ARRAYS];

pub(crate) type Axis = interop_kernel::axes::Axis<ARRAYS>;

/// The offsets of all indices of some axes, of which the first varies fastest.
pub(crate) type Offsets<A> = interop_kernel::axes::Offsets<A, Dims<usize>, ARRAYS>;

/// Returns the offsets of all indices of some axes, from `first` on.
#[inline]
pub(crate) fn offsets<A: Deref<Target = [Axis]>>(axes: A, first: Steps) -> Offsets<A> {
    let index = Dims::zeroed(axes.len());
    Offsets::new(axes, index, first)
}
