//! Small layouts, compared with a visit of each index.

use std::collections::HashSet;

use interop_core::protocols::Layout;
use interop_core::{ErrorKind, Order};
use proptest::prelude::*;

use crate::support::brute_force::{
    indices, offset, offsets, offsets_in_f_order, settings, small_layouts, small_shapes,
};
use crate::support::signed;

/// Returns whether the elements lie at 0, 1, 2, … in the order of the visit.
fn runs(offsets: &[i128]) -> bool {
    offsets.iter().zip(0..).all(|(offset, expected)| *offset == expected)
}

proptest! {
    #![proptest_config(settings())]

    /// R89, bug 89: the span follows from the lowest and the highest sum of strides, not from the product.
    #[test]
    fn the_span_is_that_of_the_visited_elements((shape, strides) in small_layouts()) {
        let layout = Layout::strided(&shape, &strides).unwrap();
        let visited = offsets(&shape, &strides);
        let low = visited.iter().min().copied().unwrap_or(0);
        let end = visited.iter().max().map_or(0, |highest| highest + 1);
        let span = layout.offsets();
        prop_assert_eq!((span.start as i128, span.end as i128), (low, end));
        prop_assert_eq!(layout.numel(), visited.len());
        prop_assert_eq!(layout.numel() == 0, visited.is_empty());
        prop_assert_eq!((layout.shape(), layout.ndim()), (&shape[..], shape.len()));
    }

    /// Bugs 72, 74, 76, R86: contiguity is determined by the visited elements, so extents of 1 and 0 add no
    /// condition.
    #[test]
    fn contiguity_is_that_of_the_visited_elements((shape, strides) in small_layouts()) {
        let layout = Layout::strided(&shape, &strides).unwrap();
        prop_assert_eq!(layout.is_contiguous(Order::C), runs(&offsets(&shape, &strides)));
        prop_assert_eq!(layout.is_contiguous(Order::F), runs(&offsets_in_f_order(&shape, &strides)));
    }

    /// Contiguous strides are those of NumPy, where an extent of 0 counts as 1.
    #[test]
    fn compact_layouts_run_through_memory(shape in small_shapes()) {
        let c = Layout::contiguous(&shape, Order::C).unwrap();
        let f = Layout::contiguous(&shape, Order::F).unwrap();
        prop_assert!(runs(&offsets(&shape, c.strides())));
        prop_assert!(runs(&offsets_in_f_order(&shape, f.strides())));
        for axis in 0..shape.len() {
            let product = |extents: &[usize]| extents.iter().map(|extent| extent.max(&1)).product::<usize>();
            prop_assert_eq!(c.strides()[axis], signed::<_, isize>(product(&shape[axis + 1..])));
            prop_assert_eq!(f.strides()[axis], signed::<_, isize>(product(&shape[..axis])));
        }
        prop_assert_eq!(Layout::strided(&shape, c.strides()), Ok(c));
    }

    /// In an injective layout no two indices share an element.
    #[test]
    fn injective_layouts_share_no_element((shape, strides) in small_layouts()) {
        let visited = offsets(&shape, &strides);
        let distinct: HashSet<_> = visited.iter().collect();
        let injective = Layout::strided(&shape, &strides).unwrap().is_injective();
        prop_assert!(!injective || distinct.len() == visited.len());
    }

    /// Slicing, transposing and flipping a contiguous array keeps it injective, so its views may be written.
    #[test]
    fn views_of_compact_arrays_are_injective(
        shape in small_shapes(),
        steps in prop::collection::vec((1_isize..4, any::<bool>()), 5),
        turn in 0_usize..5,
    ) {
        let base = Layout::contiguous(&shape, Order::C).unwrap();
        let mut axes: Vec<(usize, isize)> = Vec::new();
        for (axis, (step, flip)) in (0..shape.len()).zip(&steps) {
            let extent = shape[axis].div_ceil(step.unsigned_abs());
            axes.push((extent, base.strides()[axis] * step * if *flip { -1 } else { 1 }));
        }
        if !axes.is_empty() {
            let by = turn % axes.len();
            axes.rotate_left(by);
        }
        let (shape, strides): (Vec<usize>, Vec<isize>) = axes.into_iter().unzip();
        prop_assert!(Layout::strided(&shape, &strides).unwrap().is_injective());
    }

    /// Bugs 75, 85, R85: byte strides must be multiples of the item size only if they matter.
    #[test]
    fn byte_strides_divide_where_they_matter(
        (shape, strides) in small_layouts(),
        item in prop::sample::select(vec![1_usize, 2, 4, 8, 12]),
        rest in prop::collection::vec(0_usize..3, 5),
    ) {
        let step: isize = signed(item);
        let bytes: Vec<isize> =
            strides.iter().zip(&rest).map(|(stride, rest)| stride * step + signed::<_, isize>(rest % item)).collect();
        let made = Layout::strided_in_bytes(&shape, &bytes, item);
        let matters = |axis: &usize| shape[*axis] > 1 && !shape.contains(&0) && bytes[*axis] % step != 0;
        let wrong: Vec<usize> = (0..shape.len()).filter(matters).collect();
        if !wrong.is_empty() {
            let error = made.unwrap_err();
            let told = |axis: &usize| (format!("strides[{axis}]"), format!("{} bytes", bytes[*axis]));
            let named = wrong.iter().map(told).any(|told| told == (error.location().into(), error.found().into()));
            prop_assert!(error.kind() == ErrorKind::Strides && named, "{}", error);
            return Ok(());
        }
        let made = made.unwrap();
        for index in indices(&shape) {
            prop_assert_eq!(offset(&index, made.strides()) * step as i128, offset(&index, &bytes));
        }
    }
}
