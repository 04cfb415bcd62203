//! Axes of several arrays of one shape: sorted by stride, merged, vectorized and split into slabs.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "sizes of elements are small, and what is counted in 32 bits was compared"
)]

use core::cmp::Ordering;

use crate::array::dims::MAX_NDIM;
use crate::error::{Error, ErrorKind, Result, text};

/// The maximum number of bytes that a thread loads at once.
pub(crate) const MAX_LOAD: usize = 16;

/// The maximum number of elements that a thread loads at once.
const MAX_WIDTH: usize = 8;

/// The maximum number of units in a slab. The indices by which a launch exceeds the slab still fit 32 bits.
pub(crate) const MAX_UNITS: i64 = i32::MAX as i64;

/// An axis. The extent is counted in units, the strides in elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Axis<const K: usize> {
    pub(crate) extent: i64,
    /// 2^64 / extent, rounded up. A multiplication by it divides any 32-bit number by the extent.
    pub(crate) inverse: u64,
    pub(crate) strides: [i64; K],
}

impl<const K: usize> Axis<K> {
    pub(crate) const ONE: Self = Self { extent: 1, inverse: 0, strides: [1; K] };
}

/// Returns 2^64 / extent, rounded up, or 0 for extents 1 and 0, by which kernels do not divide.
pub(crate) fn inverse(extent: i64) -> u64 {
    if extent < 2 { 0 } else { u64::MAX / extent.unsigned_abs() + 1 }
}

/// Axes that are being sorted and merged, innermost first.
pub(crate) struct Axes<const K: usize> {
    pub(crate) list: [Axis<K>; MAX_NDIM],
    pub(crate) len: usize,
    pub(crate) addresses: [u64; K],
}

impl<const K: usize> Axes<K> {
    pub(crate) fn at(addresses: [u64; K]) -> Self {
        Self { list: [Axis::ONE; MAX_NDIM], len: 0, addresses }
    }

    pub(crate) fn push(&mut self, axis: Axis<K>) {
        self.list[self.len] = axis;
        self.len += 1;
    }

    /// Inserts an axis at its position by strides. An axis that runs backwards in all arrays is reversed first.
    pub(crate) fn insert(&mut self, mut axis: Axis<K>, sizes: [usize; K]) {
        let last = axis.extent - 1;
        if axis.strides.iter().all(|stride| *stride <= 0) {
            for ((address, stride), size) in self.addresses.iter_mut().zip(&mut axis.strides).zip(sizes) {
                *address = address.wrapping_add_signed(stride.wrapping_mul(last).wrapping_mul(size as i64));
                *stride = stride.wrapping_neg();
            }
        }
        let at = self.list[..self.len].partition_point(|other| compare(other, &axis) != Ordering::Greater);
        self.push(axis);
        self.list[at..self.len].rotate_right(1);
    }

    /// Merges adjacent axes if in every array the outer one continues where the inner one ends.
    pub(crate) fn merge(&mut self) {
        let mut kept = 0;
        for at in 1..self.len {
            let (inner, outer) = (self.list[kept], self.list[at]);
            let goes_on = |(inner_stride, outer_stride): (&i64, &i64)| {
                inner_stride.checked_mul(inner.extent) == Some(*outer_stride)
            };
            if inner.strides.iter().zip(&outer.strides).all(goes_on) {
                self.list[kept].extent *= outer.extent;
            } else {
                kept += 1;
                self.list[kept] = outer;
            }
        }
        if self.len == 0 {
            // The arrays have one element.
            self.push(Axis::ONE);
        } else {
            self.len = kept + 1;
        }
    }

    /// Returns the number of units in one index of the outermost axis, along which slabs are split. If that number
    /// exceeds [`MAX_UNITS`], the longest axis becomes the outermost. Accesses are then not coalesced, but the units
    /// can be counted.
    pub(crate) fn cut(&mut self) -> Result<u32> {
        let inner =
            |axes: &[Axis<K>]| axes.iter().try_fold(1_i64, |units, axis| units.checked_mul(axis.extent));
        let fits = |units: &i64| *units <= MAX_UNITS;
        let list = &mut self.list[..self.len];
        let outermost = list.len() - 1;
        if !inner(&list[..outermost]).is_some_and(|units| fits(&units)) {
            let longest = (0..=outermost).max_by_key(|axis| list[*axis].extent).unwrap_or(outermost);
            list[longest..].rotate_left(1);
        }
        let units = inner(&list[..outermost]).filter(fits).ok_or_else(|| {
            let found = text!("more than {MAX_UNITS} elements, the longest axis not counted");
            Error::new(
                ErrorKind::Overflow,
                "shape",
                found,
                "fewer; copy the array, so that its axes are without gaps",
            )
        })?;
        Ok(units as u32)
    }

    /// Counts the innermost axis in units that are loaded at once, if all arrays allow it. Returns the number of
    /// elements of a unit, and the number of elements after the last unit.
    pub(crate) fn vectorize(&mut self, sizes: [usize; K]) -> (u32, u32) {
        let width = width_of(sizes);
        let wide = width as i64;
        let (inner, others) = (self.list[0], &self.list[1..self.len]);
        let is_even = |(address, size): (&u64, usize)| address % (width * size).max(1) as u64 == 0;
        let fits = inner.strides == [1; K]
            && inner.extent >= wide
            && (inner.extent % wide == 0 || others.is_empty())
            && others.iter().all(|axis| axis.strides.iter().all(|stride| stride % wide == 0))
            && self.addresses.iter().zip(sizes).all(is_even);
        if width == 1 || !fits {
            return (1, 0);
        }
        self.list[0] = Axis { extent: inner.extent / wide, strides: [wide; K], ..inner };
        if self.list[0].extent == 1 && self.len > 1 {
            self.list[..self.len].rotate_left(1);
            self.len -= 1;
        }
        (width as u32, (inner.extent % wide) as u32)
    }
}

/// Compares axes: the one with the smaller stride is further in, and axes that repeat elements are the outermost.
fn compare<const K: usize>(left: &Axis<K>, right: &Axis<K>) -> Ordering {
    let key = |axis: &Axis<K>| axis.strides.map(|stride| stride.unsigned_abs().wrapping_sub(1));
    key(left).cmp(&key(right))
}

/// Returns how many elements of these sizes are loaded at once. `interop.cuh` computes the same number.
fn width_of<const K: usize>(sizes: [usize; K]) -> usize {
    let most = sizes.into_iter().max().unwrap_or(1);
    if most > MAX_LOAD || !sizes.iter().all(|size| size.is_power_of_two()) {
        return 1;
    }
    (MAX_LOAD / most).min(MAX_WIDTH)
}
