//! Layouts by brute force: each index is visited.

use proptest::prelude::*;

/// All indices of a shape, the last axis fastest.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    // With an extent of 0 the others may be too large to be listed.
    if shape.contains(&0) {
        return Vec::new();
    }
    shape.iter().fold(vec![Vec::new()], |heads, extent| {
        let extend = |head: &Vec<usize>, index| [&head[..], &[index]].concat();
        heads.iter().flat_map(|head| (0..*extent).map(move |index| extend(head, index))).collect()
    })
}

/// The offset of an index, which may be out of range.
pub(crate) fn offset(index: &[usize], strides: &[isize]) -> i128 {
    index.iter().zip(strides).map(|(index, stride)| *index as i128 * *stride as i128).sum()
}

/// The offsets of all elements, the last axis fastest.
pub(crate) fn offsets(shape: &[usize], strides: &[isize]) -> Vec<i128> {
    indices(shape).iter().map(|index| offset(index, strides)).collect()
}

/// The offsets of all elements, the first axis fastest.
pub(crate) fn offsets_in_f_order(shape: &[usize], strides: &[isize]) -> Vec<i128> {
    let reversed = |items: &[_]| items.iter().rev().copied().collect::<Vec<_>>();
    let strides: Vec<isize> = strides.iter().rev().copied().collect();
    offsets(&reversed(shape), &strides)
}

/// The extents and strides of a small array, including empty, 0-d, overlapping, reversed and contiguous ones.
pub(crate) fn small_layouts() -> impl Strategy<Value = (Vec<usize>, Vec<isize>)> {
    prop::collection::vec((0_usize..5, -12_isize..13), 0..5).prop_map(|axes| axes.into_iter().unzip())
}

/// The extents of a small array.
pub(crate) fn small_shapes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..5, 0..5)
}

/// The settings of property tests: a failure prints its smallest case, which then becomes a row of a table.
pub(crate) fn settings() -> ProptestConfig {
    // A release build runs as many in half the time.
    let cases = if cfg!(miri) {
        8
    } else if cfg!(debug_assertions) {
        500
    } else {
        2000
    };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
