//! The reference: decides what is legal in 128-bit arithmetic, and by visiting all elements if there are few.

use interop_core::protocols::MAX_NDIM;
use interop_core::{ArrayInfo, Error, ErrorKind, Order};

/// The maximum number of elements that are visited one by one.
const FEW: i128 = 512;

/// The maximum distance from the lowest element to the highest, in elements and in bits. The crate counts offsets in 63
/// bits, which is more than any processor can address.
const FARTHEST: i128 = i64::MAX as i128;

/// Converts a list to 128 bits.
pub fn widen<T: Copy + TryInto<i128>>(numbers: &[T]) -> Vec<i128> {
    numbers.iter().map(|number| (*number).try_into().unwrap_or(i128::MAX)).collect()
}

/// The number of elements, and the offsets of the lowest and the highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The number of elements.
    pub numel: i128,
    /// The offset of the lowest element; 0 without elements.
    pub low: i128,
    /// The offset one past the highest element; 0 without elements.
    pub end: i128,
}

/// The number of elements, or `None` if no array has these extents.
#[must_use]
pub fn numel(shape: &[i128]) -> Option<i128> {
    if shape.len() > MAX_NDIM || shape.iter().any(|extent| *extent < 0) {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    let product = shape.iter().try_fold(1_i128, |product, extent| product.checked_mul(*extent))?;
    (product <= FARTHEST).then_some(product)
}

/// The span of extents and strides in elements, or `None` if they are not legal.
#[must_use]
pub fn span(shape: &[i128], strides: &[i128]) -> Option<Span> {
    let numel = numel(shape)?;
    if strides.len() != shape.len() {
        return None;
    }
    if numel == 0 {
        return Some(Span { numel, low: 0, end: 0 });
    }
    // Every extent and their product are below 2⁶³ here, so no sum comes near 128 bits.
    let reach = |keep: fn(&i128) -> bool| {
        let steps = shape.iter().zip(strides).map(|(extent, stride)| (extent - 1) * stride);
        steps.filter(keep).sum::<i128>()
    };
    let (low, end) = (reach(|step| *step < 0), reach(|step| *step > 0) + 1);
    // A view of the array may start at the lowest element, so the distance counts from there.
    (end - low <= FARTHEST).then_some(Span { numel, low, end })
}

/// The strides of a contiguous array. The strides of an array without elements have no meaning.
#[must_use]
pub fn compact(shape: &[i128], order: Order) -> Vec<i128> {
    let mut strides = vec![0; shape.len()];
    let mut running = 1_i128;
    let mut step = |axis: usize| {
        strides[axis] = running;
        running = running.saturating_mul(shape[axis].max(1));
    };
    match order {
        Order::C => (0..shape.len()).rev().for_each(&mut step),
        Order::F => (0..shape.len()).for_each(&mut step),
    }
    strides
}

/// The offsets of all elements in this order, or `None` if there are too many.
#[must_use]
pub fn visit(shape: &[i128], strides: &[i128], order: Order) -> Option<Vec<i128>> {
    let numel = numel(shape).filter(|numel| *numel <= FEW)?;
    if numel == 0 {
        return Some(Vec::new());
    }
    let mut offsets = Vec::with_capacity(usize::try_from(numel).unwrap_or(0));
    offsets.push(0);
    // Starts with the fastest axis: every further index of an axis repeats the offsets so far.
    let mut turn = |axis: usize| {
        let inner = offsets.len();
        for index in 1..shape[axis] {
            for at in 0..inner {
                offsets.push(offsets[at] + index * strides[axis]);
            }
        }
    };
    match order {
        Order::C => (0..shape.len()).rev().for_each(&mut turn),
        Order::F => (0..shape.len()).for_each(&mut turn),
    }
    Some(offsets)
}

/// Returns the offsets in ascending order, without duplicates.
#[must_use]
pub fn distinct(mut offsets: Vec<i128>) -> Vec<i128> {
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// Whether the offsets are 0, 1, 2 and so on.
#[must_use]
pub fn runs(offsets: &[i128]) -> bool {
    offsets.iter().zip(0..).all(|(offset, expected)| *offset == expected)
}

/// The addresses of the elements, from the lowest byte to one past the highest, or `None` if they are not valid.
#[must_use]
pub fn addresses(first: i128, span: Span, bits: i128) -> Option<(i128, i128)> {
    if span.numel == 0 {
        return Some((0, 0));
    }
    let (low, end) = (span.low * bits, span.end * bits);
    // Beyond this limit, the offsets of the array, or of a view that starts at its lowest element, are not
    // representable.
    if end - low + 7 > FARTHEST {
        return None;
    }
    let (start, end) = (first + low.div_euclid(8), first + (end + 7).div_euclid(8));
    (first >= 4096 && start >= 0 && end <= i128::from(u64::MAX)).then_some((start, end))
}

/// Checks a description against legal extents and strides.
///
/// # Panics
///
/// If they differ.
pub fn check(info: &ArrayInfo, shape: &[i128], strides: &[i128], first: i128, bits: i128) {
    let span = span(shape, strides).expect("legal extents and strides");
    assert_eq!(widen(info.shape()), shape);
    assert_eq!(info.numel() as i128, span.numel);
    let idle = |axis: usize| shape[axis] == 1 || span.numel == 0;
    for (axis, stride) in info.strides().iter().enumerate() {
        assert!(idle(axis) || *stride as i128 == strides[axis], "strides[{axis}]");
        assert!(!idle(axis) || *stride >= 0, "strides[{axis}] says nothing and is negative");
    }
    let range = info.byte_range();
    let expected = addresses(first, span, bits).expect("legal addresses");
    assert_eq!((range.start as i128, range.end as i128), expected);
    assert_eq!(info.address() as i128, if span.numel == 0 { 0 } else { first });
    for order in [Order::C, Order::F] {
        let Some(offsets) = visit(shape, strides, order) else { continue };
        assert_eq!(info.layout().is_contiguous(order), runs(&offsets), "{order:?}");
        for offset in offsets {
            let (start, end) = ((offset * bits).div_euclid(8), (offset * bits + bits + 7).div_euclid(8));
            assert!(first + start >= expected.0 && first + end <= expected.1, "an element outside its range");
        }
    }
}

/// Checks that an error states a location, what was found, and what is allowed, unless the machine lacks something.
///
/// # Panics
///
/// If a part is missing.
pub fn check_error(error: &Error) {
    let states = matches!(error.kind(), ErrorKind::Driver | ErrorKind::OutOfMemory);
    let said = !error.location().is_empty() && !error.found().is_empty();
    assert!(said && (states || !error.allowed().is_empty()), "{error:?}");
}

/// Checks that two descriptions are the same, ignoring strides without meaning.
///
/// # Panics
///
/// If they differ.
pub fn check_same(ours: &ArrayInfo, again: &ArrayInfo) {
    let about = |info: &ArrayInfo| {
        let said = (info.address(), info.byte_range(), info.dtype(), info.is_padded(), info.device());
        (said, info.struct_type().cloned(), info.shape().to_vec(), info.is_read_only(), info.nbytes())
    };
    assert_eq!(about(ours), about(again));
    for (axis, (left, right)) in ours.strides().iter().zip(again.strides()).enumerate() {
        let idle = ours.shape()[axis] == 1 || ours.numel() == 0;
        assert!(idle || left == right, "strides[{axis}]: {left} and {right}");
    }
}
