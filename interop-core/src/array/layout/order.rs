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

/// The strides of a contiguous array of this shape. As in NumPy, an extent of 0 counts as 1. If the product of an empty
/// array's other extents overflows, the stride is 0.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a constant rank unrolls the loop")]
pub(crate) fn contiguous_strides<E: Copy + TryInto<isize>>(shape: &[E], order: Order) -> Dims<isize> {
    let mut strides = Dims::zeroed(shape.len());
    let mut next = Some(1_isize);
    for step in 0..shape.len() {
        let axis = if order == Order::F { step } else { shape.len() - 1 - step };
        strides[axis] = next.unwrap_or(0);
        next = next.and_then(|stride| stride.checked_mul(shape[axis].try_into().ok()?.max(1)));
    }
    strides
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
