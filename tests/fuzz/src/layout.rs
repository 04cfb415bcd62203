//! Layout arithmetic: extents and strides of any size, and views of legal layouts.
#![expect(clippy::cast_possible_truncation, reason = "any number will do, also one that was cut")]

use interop_core::Order;
use interop_core::protocols::Layout;

use crate::input::Input;
use crate::oracle::{check_error, compact, distinct, numel, runs, span, visit, widen};

/// The maximum length of a list; more axes than are allowed.
pub const AXES: u8 = 70;

/// Runs the target.
///
/// # Panics
///
/// If the layout and the oracle differ.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let shape: Vec<usize> =
        input.list(AXES).into_iter().map(|n| usize::from_ne_bytes(n.to_ne_bytes())).collect();
    let strides: Vec<isize> = input.list(AXES).into_iter().map(|n| n as isize).collect();
    let item = [1, 2, 3, 4, 8, 16, 65535][usize::from(input.byte() % 7)];
    check_compact(&shape);
    check_strided_in_bytes(&shape, &strides, item);
    if let Some(layout) = check_strided(&shape, &strides) {
        check_views(layout, input);
    }
}

/// Checks strides in elements.
fn check_strided(shape: &[usize], strides: &[isize]) -> Option<Layout> {
    let layout = Layout::strided(shape, strides);
    let (shape, strides) = (widen(shape), widen(strides));
    let Some(span) = span(&shape, &strides) else {
        check_error(&layout.expect_err("no such array"));
        return None;
    };
    let layout = layout.expect("a legal array");
    let offsets = layout.offsets();
    assert_eq!(
        (layout.numel() as i128, offsets.start as i128, offsets.end as i128),
        (span.numel, span.low, span.end)
    );
    for order in [Order::C, Order::F] {
        let Some(visited) = visit(&shape, &strides, order) else { continue };
        assert_eq!(layout.is_contiguous(order), runs(&visited), "{order:?}");
        let count = visited.len();
        assert!(!layout.is_injective() || distinct(visited).len() == count, "two elements in one place");
    }
    Some(layout)
}

/// Checks layouts without strides.
fn check_compact(shape: &[usize]) {
    let wide = widen(shape);
    for order in [Order::C, Order::F] {
        let layout = Layout::contiguous(shape, order);
        let Some(numel) = numel(&wide) else {
            check_error(&layout.expect_err("no such array"));
            continue;
        };
        let layout = layout.expect("a legal array");
        assert!(layout.is_contiguous(order) && layout.is_injective());
        assert_eq!(layout.offsets(), 0..isize::try_from(numel).expect("it fits"));
        assert!(numel == 0 || widen(layout.strides()) == compact(&wide, order));
        assert_eq!(Layout::strided(shape, layout.strides()), Ok(layout));
    }
}

/// Checks strides in bytes.
fn check_strided_in_bytes(shape: &[usize], strides: &[isize], item: usize) {
    let made = Layout::strided_in_bytes(shape, strides, item);
    let (shape, strides, item) = (widen(shape), widen(strides), item as i128);
    let idle = |axis: usize| shape[axis] == 1 || shape.contains(&0);
    let divides =
        strides.len() == shape.len() && (0..shape.len()).all(|axis| idle(axis) || strides[axis] % item == 0);
    let elements: Vec<i128> = strides.iter().map(|stride| stride / item).collect();
    match span(&shape, &elements).filter(|_| divides) {
        None => check_error(&made.expect_err("no such array")),
        Some(span) => {
            let made = made.expect("a legal array");
            assert_eq!(made.numel() as i128, span.numel);
            for (axis, stride) in made.strides().iter().enumerate() {
                assert!(idle(axis) || *stride as i128 == elements[axis], "strides[{axis}]");
            }
        }
    }
}

/// Checks slices of slices, and single indices.
fn check_views(mut layout: Layout, mut input: Input<'_>) {
    for _ in 0..4 {
        if layout.ndim() == 0 {
            return;
        }
        let axis = usize::from(input.byte()) % layout.ndim();
        let extent = layout.shape()[axis];
        let before = layout.clone();
        let view = if input.byte() % 3 == 0 {
            if extent == 0 {
                continue;
            }
            layout.select(axis, usize::from(input.byte()) % extent)
        } else {
            let (start, step, len) = slice_of(extent, layout.numel(), &mut input);
            layout.slice(axis, start, step, len)
        };
        check_view(&before, &view);
        layout = view.0;
    }
}

/// Returns a start, a step and a length that stay within the axis.
fn slice_of(extent: usize, all: usize, input: &mut Input<'_>) -> (usize, isize, usize) {
    let Some(last) = extent.checked_sub(1) else { return (0, 1, 0) };
    let start = usize::from(input.byte()).min(last);
    let step = input.number() as isize;
    let most = match step {
        // Repeats one element, but only as often as no product overflows.
        0 if all < isize::MAX as usize >> 8 => usize::from(u8::MAX),
        0 => 1,
        1.. => (last - start) / step.unsigned_abs() + 1,
        _ => start / step.unsigned_abs() + 1,
    };
    (start, step, most.min(usize::from(input.byte())))
}

/// Checks that a view reaches no element outside the whole layout.
fn check_view(whole: &Layout, (view, offset): &(Layout, isize)) {
    let fresh = Layout::strided(view.shape(), view.strides()).expect("a view is a layout");
    assert_eq!((fresh.numel(), fresh.offsets()), (view.numel(), view.offsets()));
    if view.numel() == 0 {
        return;
    }
    let (inner, outer) = (view.offsets(), whole.offsets());
    assert!(offset + inner.start >= outer.start && offset + inner.end <= outer.end);
    let visited = |layout: &Layout| visit(&widen(layout.shape()), &widen(layout.strides()), Order::C);
    if let (Some(all), Some(some)) = (visited(whole), visited(view)) {
        let all = distinct(all);
        let there = |at: i128| all.binary_search(&(at + *offset as i128)).is_ok();
        assert!(some.into_iter().all(there), "an element that is not there");
    }
}
