//! New layouts over the same memory: slices, parts of elements, and iteration over element offsets.

use crate::array::dims::Dims;
use crate::array::layout::errors::{axes_in_words, out_of_reach};
use crate::array::layout::order::Order;
use crate::array::layout::{Layout, StrideList, contiguous_strides, product};
use crate::error::{Error, ErrorKind, Result, text};

impl Layout {
    /// The strides in bytes, for elements of `item` bytes. A stride that overflows belongs to an axis of extent 1 and
    /// is replaced by that of a contiguous array.
    pub(crate) fn strides_in_bytes(&self, item: usize) -> Vec<isize> {
        let compact = contiguous_strides(self.shape(), Order::C);
        let bytes = |stride: isize| stride.checked_mul(item as isize);
        let strides = self.strides().iter().zip(&*compact);
        strides.map(|(stride, compact)| bytes(*stride).or_else(|| bytes(*compact)).unwrap_or(0)).collect()
    }

    /// Takes every `step`-th index of an axis, `len` indices from `start`. Also returns the offset of the new first
    /// element, in elements.
    ///
    /// # Panics
    ///
    /// If the axis or a selected index does not exist, or the result has more elements than fit `isize` (possible only
    /// with a step of 0).
    #[doc(hidden)]
    #[must_use]
    pub fn slice(&self, axis: usize, start: usize, step: isize, len: usize) -> (Self, isize) {
        let extent = self.shape()[axis];
        if let Some(steps) = len.checked_sub(1) {
            // The step is taken without its sign, because an extent next to one of 0 may exceed `isize`.
            let reach = steps.checked_mul(step.unsigned_abs());
            let last = reach.and_then(|reach| match step {
                0.. => start.checked_add(reach),
                _ => start.checked_sub(reach),
            });
            let inside = start < extent && last.is_some_and(|last| last < extent);
            assert!(inside, "slice outside axis {axis}");
        }
        let mut shape = Dims::from(self.shape());
        shape[axis] = len;
        let (numel, _) = Self::check(&shape, StrideList::<isize>::Contiguous(Order::C))
            .unwrap_or_else(|error| panic!("slice of axis {axis}: {error}"));
        let mut strides = Dims::from(self.strides());
        // With fewer than two indices the stride is never used; otherwise the product stays within the axis.
        if len > 1 && numel > 0 {
            strides[axis] *= step;
        }
        let offset = if numel == 0 { 0 } else { self.strides()[axis] * start as isize };
        (Self { shape, strides, numel }, offset)
    }

    /// Removes an axis by selecting one index of it. Also returns the offset of the new first element, in elements.
    ///
    /// # Panics
    ///
    /// If the axis or the index does not exist.
    #[doc(hidden)]
    #[must_use]
    pub fn select(&self, axis: usize, index: usize) -> (Self, isize) {
        assert!(index < self.shape()[axis], "index {index} outside axis {axis}");
        let (shape, strides) = (without(self.shape(), axis), without(self.strides(), axis));
        let numel = product(shape.iter().copied())
            .unwrap_or_else(|| unreachable!("it has no more elements than the layout"));
        let offset = if numel == 0 { 0 } else { self.strides()[axis] * index as isize };
        (Self { shape, strides, numel }, offset)
    }

    /// Divides each element into `parts` equal parts, which become the last axes. Strides count parts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Overflow`] and [`ErrorKind::Rank`], as for any layout.
    pub(crate) fn split_elements(&self, parts: &[usize]) -> Result<Self> {
        let inner = Self::contiguous(parts, Order::C)?;
        let mut outer = Dims::from(self.strides());
        for (axis, stride) in outer.iter_mut().enumerate() {
            let is_unused = self.shape()[axis] == 1 || self.is_empty();
            *stride = match stride.checked_mul(inner.numel as isize) {
                Some(stride) => stride,
                None if is_unused => 0,
                None => return Err(out_of_reach(self.shape(), self.strides())),
            };
        }
        Self::strided(&concatenated(self.shape(), parts), &concatenated(&outer, inner.strides()))
    }

    /// Merges the last axes, which must be `parts`, into one element; the reverse of `split_elements`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Shape`] if the last axes are not `parts`; [`ErrorKind::Strides`] if they are not contiguous, or
    /// another stride is not a multiple of an element.
    pub(crate) fn join_elements(&self, parts: &[usize]) -> Result<Self> {
        let Some(outer) = self.ndim().checked_sub(parts.len()) else {
            return Err(Error::new(
                ErrorKind::Rank,
                "shape",
                axes_in_words(self.ndim()),
                format_args!("{} or more, of which the last are {parts:?}", axes_in_words(parts.len())),
            ));
        };
        if self.shape()[outer..] != *parts {
            let found = text!("{:?} as the last axes of {:?}", &self.shape()[outer..], self.shape());
            return Err(Error::new(ErrorKind::Shape, "shape", found, format_args!("{parts:?}")));
        }
        let count = Self::contiguous(parts, Order::C)?.numel.max(1) as isize;
        let shape = &self.shape()[..outer];
        let mut strides = Dims::from(&self.strides()[..outer]);
        // An array without elements may have strides that `strided` would reject.
        if !self.is_empty() && !Self::strided(parts, &self.strides()[outer..])?.is_contiguous(Order::C) {
            let found = text!("{:?} for the last axes", &self.strides()[outer..]);
            let allowed = text!("contiguous axes {parts:?}, which are one element");
            return Err(Error::new(ErrorKind::Strides, "strides", found, allowed));
        }
        for (axis, stride) in strides.iter_mut().enumerate() {
            let is_unused = shape[axis] == 1 || self.is_empty();
            if *stride % count != 0 && !is_unused {
                let allowed = text!("a multiple of {count}, the number of items in an element {parts:?}");
                return Err(Error::new(
                    ErrorKind::Strides,
                    format_args!("strides[{axis}]"),
                    *stride,
                    allowed,
                ));
            }
            *stride /= count;
        }
        Self::strided(shape, &strides)
    }

    /// The offsets of all elements, in the order in which a compact array of `order` holds them.
    #[cfg(all(test, feature = "ndarray"))]
    pub(crate) fn walk(&self, order: Order) -> impl Iterator<Item = isize> + '_ {
        let (ndim, shape, strides) = (self.ndim(), self.shape(), self.strides());
        let mut index = Dims::zeroed(ndim);
        let mut offset = 0_isize;
        (0..self.numel).map(move |_| {
            let current = offset;
            for step in 0..ndim {
                let axis = if order == Order::C { ndim - 1 - step } else { step };
                // One step past the end of an axis may overflow before the index goes back to 0.
                index[axis] += 1;
                offset = offset.wrapping_add(strides[axis]);
                if index[axis] < shape[axis] {
                    break;
                }
                offset = offset.wrapping_sub(strides[axis].wrapping_mul(shape[axis] as isize));
                index[axis] = 0;
            }
            current
        })
    }

    /// A layout that visits each memory location once, from the lowest. Repeated axes and axes that continue one
    /// another are merged (broadcast arrays, sliding windows). Axes that overlap in other ways stay as they are.
    #[cfg(feature = "ndarray")]
    pub(crate) fn without_repeats(&self) -> Self {
        let strides = self.strides().iter().map(|stride| stride.unsigned_abs());
        let mut axes: Vec<(usize, usize)> = self.shape().iter().copied().zip(strides).collect();
        axes.retain(|(extent, stride)| *extent > 1 && *stride != 0);
        axes.sort_unstable_by_key(|(_, stride)| *stride);
        let mut apart: Vec<(usize, usize)> = Vec::new();
        for (extent, stride) in axes {
            match apart.last_mut() {
                // Each step begins within the locations so far, or right behind them.
                Some((count, step)) if stride % *step == 0 && stride / *step <= *count => {
                    *count += (extent - 1) * (stride / *step);
                }
                _ => apart.push((extent, stride)),
            }
        }
        let (shape, strides): (Vec<usize>, Vec<isize>) =
            apart.into_iter().map(|(count, step)| (count, step as isize)).unzip();
        Self::strided(&shape, &strides)
            .unwrap_or_else(|_| unreachable!("its offsets are those of the layout"))
    }
}

/// All items except the one at `axis`.
fn without<T: Copy + Default>(items: &[T], axis: usize) -> Dims<T> {
    concatenated(&items[..axis], &items[axis + 1..])
}

/// The items of both lists.
fn concatenated<T: Copy + Default>(head: &[T], tail: &[T]) -> Dims<T> {
    let item = |at: usize| if at < head.len() { head[at] } else { tail[at - head.len()] };
    Dims::from_fn(head.len() + tail.len(), item)
}

#[cfg(all(test, feature = "ndarray"))]
mod tests {
    use super::*;

    /// The number of locations does not depend on the number of indices.
    #[test]
    fn every_place_comes_once() {
        for (shape, strides, count) in [
            (&[2, 3, 4][..], &[12, 4, 1][..], 24),
            (&[4, 3, 2], &[1, 4, 12], 24),
            (&[3, 4], &[8, 1], 12),
            (&[3, 4], &[-8, -2], 12),
            (&[1 << 40, 3], &[0, 1], 3),
            (&[1 << 40, 2, 1 << 20], &[0, -5, 0], 2),
            (&[10, 4], &[1, 1], 13),
            (&[4, 10], &[2, 2], 13),
            (&[5, 3], &[3, 1], 15),
            (&[5, 3], &[4, 1], 15),
            (&[5, 3, 2], &[3, 1, 3], 18),
            (&[], &[], 1),
        ] {
            let layout = Layout::strided(shape, strides).unwrap();
            let places: Vec<isize> = layout.without_repeats().walk(Order::C).collect();
            assert_eq!(places.len(), count, "{shape:?} {strides:?}");
            if layout.numel() < 100 {
                let lowest = layout.offsets().start;
                let mut all: Vec<isize> = layout.walk(Order::C).map(|offset| offset - lowest).collect();
                let mut places = places;
                all.sort_unstable();
                all.dedup();
                places.sort_unstable();
                assert_eq!(places, all, "{shape:?} {strides:?}");
            }
        }
    }
}
