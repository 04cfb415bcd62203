//! C and F order, and the strides of contiguous arrays.

use crate::array::dims::Dims;

/// The memory order of the elements of a contiguous array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Row-major: the last axis varies fastest.
    #[default]
    C,
    /// Column-major: the first axis varies fastest.
    F,
}

/// The strides of a contiguous array of this shape.
pub(crate) fn contiguous_strides(shape: &[usize], order: Order) -> Dims<isize> {
    Dims::filled(shape.len(), |strides| fill_contiguous(strides, |axis| shape[axis], order))
}

/// Whether these elements lie without gaps in this order. There must be elements.
#[inline]
pub(crate) fn is_contiguous(shape: &[usize], strides: &[isize], order: Order) -> bool {
    let mut expected = 1;
    let mut matches = |(extent, stride): (&usize, &isize)| {
        let fits = *extent == 1 || *stride == expected;
        expected *= *extent as isize;
        fits
    };
    let mut axes = shape.iter().zip(strides);
    match order {
        Order::C => axes.rev().all(&mut matches),
        Order::F => axes.all(&mut matches),
    }
}

/// Writes the strides of a contiguous array. As in NumPy, an extent of 0 counts as 1. If the product of an empty
/// array's other extents overflows, the strides are 0.
#[inline]
pub(crate) fn fill_contiguous(strides: &mut [isize], extent: impl Fn(usize) -> usize, order: Order) {
    let ndim = strides.len();
    let (mut running, mut fits) = (1_isize, true);
    let mut step = |axis: usize| {
        strides[axis] = if fits { running } else { 0 };
        let (next, overflows) = running.overflowing_mul(extent(axis).max(1) as isize);
        running = next;
        fits &= !overflows && next > 0;
    };
    match order {
        Order::C => (0..ndim).rev().for_each(&mut step),
        Order::F => (0..ndim).for_each(&mut step),
    }
}
