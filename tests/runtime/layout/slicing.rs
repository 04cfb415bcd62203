//! Slices and selections, compared with picking the indices one by one.

use std::panic;

use interop_core::Order;
use interop_core::protocols::Layout;
use proptest::prelude::*;

use crate::support::allocator::watch;
use crate::support::brute_force::{indices, offset, offsets, settings, small_layouts};
use crate::support::signed;

/// Generates a slice of an extent: start, step and length within the extent.
fn slices(extent: usize) -> impl Strategy<Value = (usize, isize, usize)> {
    (0..extent.max(1), -3_isize..4).prop_flat_map(move |(start, step)| {
        let most = match step {
            _ if extent == 0 => 0,
            0 => 3,
            _ if step > 0 => (extent - 1 - start) / step.unsigned_abs() + 1,
            _ => start / step.unsigned_abs() + 1,
        };
        (Just(start), Just(step), 0..=most)
    })
}

proptest! {
    #![proptest_config(settings())]

    /// A slice visits the elements at its indices, and nothing else (bugs 84, 86).
    #[test]
    fn a_slice_takes_what_it_names(
        (axis, (start, step, len), shape, strides) in small_layouts()
            .prop_filter("an axis to slice", |(shape, _)| !shape.is_empty())
            .prop_flat_map(|(shape, strides)| (0..shape.len(), Just(shape), Just(strides)))
            .prop_flat_map(|(axis, shape, strides)| {
                (Just(axis), slices(shape[axis]), Just(shape), Just(strides))
            }),
    ) {
        let whole = Layout::strided(&shape, &strides).unwrap();
        let (part, shift) = whole.slice(axis, start, step, len);
        let mut expected = Vec::new();
        let mut taken = shape.clone();
        taken[axis] = len;
        for mut index in indices(&taken) {
            let at = signed::<_, isize>(start) + step * signed::<_, isize>(index[axis]);
            index[axis] = at.try_into().expect("an index of the whole");
            expected.push(offset(&index, whole.strides()));
        }
        let visited: Vec<i128> =
            offsets(part.shape(), part.strides()).iter().map(|at| at + shift as i128).collect();
        prop_assert_eq!(part.shape(), &taken[..]);
        prop_assert_eq!(part.numel(), expected.len());
        prop_assert_eq!(visited, expected);
        // The result is an ordinary layout: its offsets are those of its elements.
        let again = Layout::strided(part.shape(), part.strides()).unwrap();
        prop_assert_eq!(again.offsets(), part.offsets());
    }

    /// A selection visits the elements at its index and has one axis less.
    #[test]
    fn a_selection_drops_its_axis(
        (axis, index, shape, strides) in small_layouts()
            .prop_filter("an axis that has an index", |(shape, _)| shape.iter().any(|extent| *extent > 0))
            .prop_flat_map(|(shape, strides)| {
                let axes: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] > 0).collect();
                (prop::sample::select(axes), Just(shape), Just(strides))
            })
            .prop_flat_map(|(axis, shape, strides)| (Just(axis), 0..shape[axis], Just(shape), Just(strides))),
    ) {
        let whole = Layout::strided(&shape, &strides).unwrap();
        let (part, shift) = whole.select(axis, index);
        let (sliced, by) = whole.slice(axis, index, 1, 1);
        prop_assert_eq!(part.ndim() + 1, whole.ndim());
        let visited = |layout: &Layout, shift: isize| -> Vec<i128> {
            offsets(layout.shape(), layout.strides()).iter().map(|at| at + shift as i128).collect()
        };
        prop_assert_eq!(visited(&part, shift), visited(&sliced, by));
    }
}

/// As many axes as fit in place need no allocation.
#[test]
fn a_selection_of_few_axes_allocates_nothing() {
    for (ndim, made) in [(4, 0), (6, 0), (7, 2)] {
        let layout = Layout::contiguous(&vec![2; ndim], Order::C).unwrap();
        let ((part, _), tally) = watch(|| layout.select(0, 1));
        assert_eq!((part.ndim(), tally.made), (ndim - 1, made), "{ndim} axes");
    }
}

/// An index outside the axis panics with the number of the axis, in release builds too.
#[test]
fn a_slice_outside_the_axis_panics() {
    let layout = Layout::contiguous(&[10], Order::C).unwrap();
    let rows: [(usize, isize, usize); 9] = [
        (10, 1, 1),
        // The last element exists, the first does not.
        (10, -1, 2),
        (0, 1, 11),
        (5, 2, 4),
        (3, -1, 5),
        (0, -1, 2),
        (usize::MAX, 1, 1),
        (0, isize::MAX, 3),
        // The length becomes -1 if it is converted to a signed number.
        (0, -1, usize::MAX),
    ];
    for (start, step, len) in rows {
        let taken = panic::catch_unwind(|| layout.slice(0, start, step, len));
        assert!(taken.is_err(), "{start}, {step}, {len}: {taken:?}");
    }
    assert!(panic::catch_unwind(|| layout.slice(1, 0, 1, 1)).is_err(), "there is no axis 1");
    assert!(panic::catch_unwind(|| layout.select(0, 10)).is_err(), "there is no index 10");
    // Each selected element exists, but no array can have so many: the product must not wrap in a release build.
    let wide = Layout::contiguous(&[2, 1 << 60], Order::C).unwrap();
    assert!(panic::catch_unwind(|| wide.slice(0, 0, 0, 1 << 40)).is_err(), "too many elements");
    assert!(panic::catch_unwind(|| layout.select(1, 0)).is_err(), "there is no axis 1");
    // No element, but an extent that does not fit `isize` (found by the fuzz target).
    let endless = Layout::contiguous(&[usize::MAX, 0], Order::C).unwrap();
    assert_eq!(endless.slice(0, 0, isize::MAX, 3).0.shape(), [3, 0]);
    assert_eq!(endless.slice(0, usize::MAX - 1, isize::MIN, 2).0.shape(), [2, 0]);
    assert!(panic::catch_unwind(|| endless.slice(0, 1, isize::MAX, 4)).is_err(), "beyond the extent");
}

/// The stride covers the skipped elements; it is unchanged if there is no second element.
#[test]
fn a_slice_steps_over_what_lies_between() {
    let layout = Layout::contiguous(&[10, 4], Order::C).unwrap();
    let rows: [(usize, isize, usize, &[isize], isize); 4] = [
        (1, 3, 3, &[12, 1], 4),
        (9, -4, 3, &[-16, 1], 36),
        (2, 0, 5, &[0, 1], 8),
        (2, isize::MAX, 1, &[4, 1], 8),
    ];
    for (start, step, len, strides, shift) in rows {
        let (part, by) = layout.slice(0, start, step, len);
        assert_eq!((part.shape(), part.strides(), by), (&[len, 4][..], strides, shift), "step {step}");
    }
}

/// An empty slice does not move the address, wherever it starts.
#[test]
fn a_slice_of_nothing_is_empty() {
    let layout = Layout::contiguous(&[10, 3], Order::C).unwrap();
    for start in [0, 5, 10, usize::MAX] {
        let (empty, shift) = layout.slice(0, start, isize::MIN, 0);
        assert_eq!((empty.shape(), empty.numel(), shift, empty.offsets()), (&[0, 3][..], 0, 0, 0..0));
    }
}

/// In an array without elements no product and no stride is too large (bug 165).
#[test]
fn slices_of_empty_arrays_do_not_overflow() {
    let huge = Layout::contiguous(&[1 << 62, 4, 5, 0], Order::C).unwrap();
    assert_eq!(huge.slice(3, 0, 1, 0).0.shape(), [1 << 62, 4, 5, 0]);
    assert_eq!(huge.select(2, 4).0.shape(), [1 << 62, 4, 0]);
    let far = Layout::strided(&[0, 3], &[1, isize::MAX]).unwrap();
    let (part, shift) = far.slice(1, 2, -2, 2);
    assert_eq!((part.shape(), part.numel(), shift), (&[0, 2][..], 0, 0));
    assert_eq!(far.select(1, 2).1, 0);
}

/// Found by fuzzing: a flipped axis starts at its other end, so offsets are as large as the whole span.
#[test]
fn what_is_turned_around_is_a_layout_too() {
    let widest = Layout::strided(&[2, 2], &[-(isize::MAX / 2), isize::MAX / 2]).unwrap();
    for (axis, other) in [(0, isize::MAX / 2), (1, -(isize::MAX / 2))] {
        let (view, offset) = widest.slice(axis, 1, -1, 2);
        assert_eq!(Layout::strided(view.shape(), view.strides()).as_ref(), Ok(&view));
        let (inner, outer) = (view.offsets(), widest.offsets());
        assert_eq!((offset + inner.start, offset + inner.end), (outer.start, outer.end));
        assert_eq!(view.strides(), [other, other]);
    }
}
