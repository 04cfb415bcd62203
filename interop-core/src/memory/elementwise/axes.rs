//! Axes of several arrays of one shape: sorted by stride, merged, vectorized, cut into slabs.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "sizes of elements are small, and what is counted in 32 bits was compared"
)]

use core::cmp::Ordering;

use crate::array::dims::MAX_NDIM;
use crate::error::{Error, ErrorKind, Result, text};

/// The bytes and the elements that a thread loads at once, at most.
pub(crate) const MAX_LOAD: usize = 16;

const MAX_WIDTH: usize = 8;

/// The units of a slab: with those of a launch beyond they are fewer than 2^32.
pub(crate) const MAX_UNITS: i64 = i32::MAX as i64;

/// An axis, counted in units but for the strides, which are in elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Axis<const K: usize> {
    pub(crate) extent: i64,
    /// 2^64 / extent, rounded up: a multiplication by it divides every number of 32 bits.
    pub(crate) inverse: u64,
    pub(crate) strides: [i64; K],
}

impl<const K: usize> Axis<K> {
    pub(crate) const ONE: Self = Self { extent: 1, inverse: 0, strides: [1; K] };
}

/// 2^64 / extent, rounded up. There is no division by 1 or 0.
pub(crate) fn inverse(extent: i64) -> u64 {
    if extent < 2 { 0 } else { u64::MAX / extent.unsigned_abs() + 1 }
}

/// Axes that are being sorted and merged, the innermost first.
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

    /// Puts an axis where it belongs by its strides; turned around where it runs backwards in all arrays.
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

    /// Makes one axis of neighbours in which every array goes on where the inner one ends.
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
            // One element.
            self.push(Axis::ONE);
        } else {
            self.len = kept + 1;
        }
    }

    /// The units in one index of the outermost axis, which slabs are cut along. Where these are too many for 32 bits, the
    /// longest axis becomes the outermost: what is next to each other is then not loaded together, but counted.
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

    /// Counts the innermost axis in pieces that are loaded at once, if all arrays allow it. The elements of a piece, and
    /// how many are left.
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

/// The order of axes: the smaller stride further in, and those that repeat furthest out.
fn compare<const K: usize>(left: &Axis<K>, right: &Axis<K>) -> Ordering {
    let key = |axis: &Axis<K>| axis.strides.map(|stride| stride.unsigned_abs().wrapping_sub(1));
    key(left).cmp(&key(right))
}

/// How many elements of these sizes are loaded at once, as `interop.cuh` computes it too.
fn width_of<const K: usize>(sizes: [usize; K]) -> usize {
    let most = sizes.into_iter().max().unwrap_or(1);
    if most > MAX_LOAD || !sizes.iter().all(|size| size.is_power_of_two()) {
        return 1;
    }
    (MAX_LOAD / most).min(MAX_WIDTH)
}
