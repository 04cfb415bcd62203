//! Edge cases of the arithmetic, and axes of extent 1.

use interop_core::protocols::{Layout, MAX_NDIM};
use interop_core::{ErrorKind, Order};

use crate::support::{Told, assert_told};

const MAX: isize = isize::MAX;
const MIN: isize = isize::MIN;

/// Bugs 165, 166, 168: products and sums that do not fit are errors, in release builds too.
#[test]
fn what_does_not_fit_is_refused() {
    let overflow = |place, found| -> Told { (ErrorKind::Overflow, place, found, "address space") };
    let shapes: [(&[usize], &str); 4] = [
        (&[1 << 32, 1 << 32, 16], "[4294967296, 4294967296, 16]"),
        (&[1 << 63], "[9223372036854775808]"),
        (&[usize::MAX, 2], "[18446744073709551615, 2]"),
        (&[3, 1 << 62], "[3, 4611686018427387904]"),
    ];
    for (shape, found) in shapes {
        for order in [Order::C, Order::F] {
            assert_told(&Layout::contiguous(shape, order).unwrap_err(), overflow("shape", found));
        }
        let zeros = vec![0; shape.len()];
        assert_told(&Layout::strided(shape, &zeros).unwrap_err(), overflow("shape", found));
    }
    let strides: [(&[usize], &[isize]); 8] = [
        (&[2], &[MAX]),
        (&[3], &[MIN]),
        // Within reach of the first element, but not of the lowest one, where a view may begin.
        (&[2], &[MIN + 1]),
        (&[2, 2], &[MIN / 2, MAX / 2]),
        (&[2, 2], &[MAX / 2 + 1, MAX / 2 + 1]),
        (&[2, 2], &[MIN, -1]),
        (&[5, 2], &[MAX / 4, 7]),
        (&[1 << 61, 2], &[4, 5]),
    ];
    for (shape, strides) in strides {
        let error = Layout::strided(shape, strides).unwrap_err();
        assert_told(&error, overflow("strides", "for shape"));
        assert!(error.found().contains(&format!("{strides:?}")), "{error}");
    }
}

/// The largest values that fit.
#[test]
fn what_just_fits_is_accepted() {
    let longest = Layout::contiguous(&[(1 << 63) - 1], Order::C).unwrap();
    assert_eq!((longest.numel(), longest.offsets()), ((1 << 63) - 1, 0..MAX));
    let rows: [(&[usize], &[isize], _); 5] = [
        (&[2], &[MAX - 1], 0..MAX),
        (&[2], &[MIN + 2], MIN + 2..1),
        (&[2, 2], &[MIN / 2, MAX / 2 - 1], MIN / 2..MAX / 2),
        (&[2, 2], &[MIN + 3, -1], MIN + 2..1),
        (&[1 << 31, 1 << 31], &[0, 0], 0..1),
    ];
    for (shape, strides, offsets) in rows {
        let layout = Layout::strided(shape, strides).unwrap();
        assert_eq!(layout.offsets(), offsets, "{shape:?} {strides:?}");
        // The injectivity check sums magnitudes, which may be twice as large.
        assert_eq!(layout.is_injective(), *strides != [0, 0], "{shape:?} {strides:?}");
        assert!(!layout.is_contiguous(Order::C) && !layout.is_contiguous(Order::F));
    }
}

/// R84, bug 172: the maximum number of axes.
#[test]
fn there_are_64_axes_at_most() {
    assert_eq!(MAX_NDIM, 64);
    let most = Layout::contiguous(&[1; 64], Order::F).unwrap();
    assert_eq!((most.ndim(), most.numel(), most.strides()), (64, 1, &[1; 64][..]));
    let mut doubling = [2; 64];
    doubling[40..].fill(1);
    assert_eq!(Layout::contiguous(&doubling, Order::C).unwrap().numel(), 1 << 40);

    let told = (ErrorKind::Rank, "shape", "65 axes", "64");
    assert_told(&Layout::contiguous(&[1; 65], Order::C).unwrap_err(), told);
    assert_told(&Layout::strided(&[1; 65], &[1; 65]).unwrap_err(), told);
    assert_told(&Layout::strided_in_bytes(&[0; 65], &[1; 65], 4).unwrap_err(), told);
    assert_told(
        &Layout::contiguous(&[0; 1000], Order::C).unwrap_err(),
        (ErrorKind::Rank, "shape", "1000", "64"),
    );
}

/// R30: one stride for each axis.
#[test]
fn there_is_one_stride_for_each_axis() {
    let rows: [(&[usize], &[isize], &str, &str); 4] = [
        (&[2, 3], &[1], "1 stride", "2, one for each axis"),
        (&[2, 3], &[3, 1, 1], "3 strides", "2, one for each axis"),
        (&[], &[1], "1 stride", "0, one for each axis"),
        (&[0], &[], "0 strides", "1, one for each axis"),
    ];
    for (shape, strides, found, allowed) in rows {
        let told = (ErrorKind::Strides, "strides", found, allowed);
        assert_told(&Layout::strided(shape, strides).unwrap_err(), told);
        assert_told(&Layout::strided_in_bytes(shape, strides, 4).unwrap_err(), told);
    }
}

/// Bug 165: an array without elements is never too large, whatever the other extents are.
#[test]
fn an_empty_array_has_any_extents() {
    let rows: [&[usize]; 5] =
        [&[0, 1 << 62, 4], &[1 << 62, 4, 0], &[usize::MAX, 0, usize::MAX], &[0], &[3, 0, 2]];
    for shape in rows {
        for order in [Order::C, Order::F] {
            let layout = Layout::contiguous(shape, order).unwrap();
            assert_eq!((layout.numel(), layout.shape(), layout.offsets()), (0, shape, 0..0));
            assert!(
                layout.is_contiguous(Order::C) && layout.is_contiguous(Order::F) && layout.is_injective()
            );
        }
    }
    // If the product fits, the strides are those of NumPy.
    assert_eq!(Layout::contiguous(&[3, 0, 2], Order::C).unwrap().strides(), [2, 2, 1]);
    assert_eq!(Layout::contiguous(&[3, 0, 2], Order::F).unwrap().strides(), [1, 3, 3]);
    // If it does not fit, they are 0 from there on, even if the wrapped product looks valid.
    let wide = Layout::contiguous(&[5, 0, 2, (1 << 62) + 1, 4], Order::C).unwrap();
    assert_eq!(wide.strides(), [0, 0, 0, 4, 1]);
}

/// Bug 76: an empty array may have any strides.
#[test]
fn an_empty_array_has_any_strides() {
    let rows: [[isize; 3]; 5] = [[20, 20, 1], [0, 0, 0], [7, -3, 5], [MAX, MIN, MAX], [MIN, MIN, MIN]];
    for strides in rows {
        let layout = Layout::strided(&[100, 0, 20], &strides).unwrap();
        assert_eq!(layout.offsets(), 0..0);
        assert!(layout.is_contiguous(Order::C) && layout.is_contiguous(Order::F) && layout.is_injective());
        let bytes = Layout::strided_in_bytes(&[100, 0, 20], &strides, 8).unwrap();
        assert!(bytes.is_contiguous(Order::C));
        assert!(bytes.strides().iter().all(|stride| *stride >= 0), "bug 83: {:?}", bytes.strides());
    }
}

/// Bugs 72, 73, 75, 83: the stride of an axis of extent 1 is unconstrained. A value from which a consumer could infer
/// an order is kept; a negative one has no meaning and is replaced by the contiguous one.
#[test]
fn an_axis_of_one_has_any_stride() {
    let rows: [(&[usize], &[isize], &[isize]); 9] = [
        (&[1], &[2], &[2]),
        (&[1024, 1], &[1, 1024], &[1, 1024]),
        (&[1, 1, 768, 768], &[589_824, 589_824, 768, 1], &[589_824, 589_824, 768, 1]),
        (&[1, 10, 20], &[-200, 20, 1], &[200, 20, 1]),
        (&[10, 1], &[1, -1], &[1, 1]),
        (&[1, 1], &[MAX, MIN], &[MAX, 1]),
        (&[1, 1], &[0, -1], &[0, 1]),
        (&[1, 5], &[0, 1], &[0, 1]),
        (&[5, 1, 3], &[3, MAX, 1], &[3, MAX, 1]),
    ];
    for (shape, strides, kept) in rows {
        let layout = Layout::strided(shape, strides).unwrap();
        assert_eq!(layout.strides(), kept, "{shape:?} {strides:?}");
        assert!(layout.is_contiguous(Order::C), "{shape:?} {strides:?}");
        assert!(layout.is_injective(), "{shape:?} {strides:?}");
        assert_eq!(layout.offsets(), 0..layout.numel().try_into().unwrap());
    }
    // In bytes: 4 is not a multiple of 8, but that does not matter for the axis of extent 1 (numpy#20336).
    let layout = Layout::strided_in_bytes(&[1, 10], &[4, 8], 8).unwrap();
    assert_eq!(layout.strides(), [10, 1]);
    let told = (ErrorKind::Strides, "strides[0]", "4 bytes", "8 bytes");
    assert_told(&Layout::strided_in_bytes(&[2, 10], &[4, 8], 8).unwrap_err(), told);
}

/// Bug 89 with numbers: shape (3, 3), byte strides (16, 12) and items of 4 bytes span 60 bytes.
#[test]
fn the_span_of_a_gapped_array() {
    let layout = Layout::strided_in_bytes(&[3, 3], &[16, 12], 4).unwrap();
    assert_eq!((layout.strides(), layout.offsets()), (&[4, 3][..], 0..15));
    let reversed = Layout::strided(&[3, 3], &[-4, 3]).unwrap();
    assert_eq!(reversed.offsets(), -8..7);
}

/// A layout without axes has one element.
#[test]
fn no_axes_are_one_element() {
    for order in [Order::C, Order::F] {
        let scalar = Layout::contiguous(&[], order).unwrap();
        assert_eq!((scalar.ndim(), scalar.numel(), scalar.offsets()), (0, 1, 0..1));
        assert!(scalar.is_contiguous(order) && scalar.is_injective() && scalar.numel() == 1);
    }
    assert_eq!(Layout::strided(&[], &[]), Layout::contiguous(&[], Order::C));
}

/// Layouts are equal if all their numbers are, whether the numbers are stored in place or not.
#[test]
fn equal_layouts_have_equal_numbers() {
    let long = |first: usize| [first, 1, 1, 1, 1, 1, 2];
    let compact = |shape: &[usize]| Layout::contiguous(shape, Order::C).unwrap();
    assert_eq!(compact(&[2, 3]), Layout::strided(&[2, 3], &[3, 1]).unwrap());
    assert_eq!(compact(&long(2)), compact(&long(2)));
    for other in
        [compact(&[3, 2]), compact(&[2]), compact(&[2, 3, 1]), Layout::contiguous(&[2, 3], Order::F).unwrap()]
    {
        assert_ne!(compact(&[2, 3]), other);
    }
    assert_ne!(compact(&long(2)), compact(&long(3)));
    assert_eq!(format!("{:?}", compact(&[2, 3])), "Layout { shape: [2, 3], strides: [3, 1], numel: 6 }");
}
