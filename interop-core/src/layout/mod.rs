//! Shapes and strides: defaults, contiguity, reachable range, slicing. All arithmetic is checked.

mod reshape;
mod walk;

use core::ops::Range;

pub(crate) use walk::Spacing;
use walk::walk;

use crate::dims::Dims;
use crate::error::Result;

/// The order in which the elements of a compact array lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Row-major: the last axis varies fastest.
    #[default]
    C,
    /// Column-major: the first axis varies fastest.
    F,
}

/// A shape with strides in elements, of which the products and sums are known not to overflow.
///
/// Having one means: at most [`MAX_NDIM`](crate::MAX_NDIM) axes; the number of elements fits `isize`; the lowest and highest element offset
/// fit `isize`. An axis of extent 1, and every axis of an array without elements, puts no condition on its stride.
///
/// ```
/// use interop_core::{Layout, Order};
///
/// let image = Layout::compact(&[480, 640, 3], Order::C)?;
/// assert_eq!(image.strides(), [1920, 3, 1]);
/// let flipped = image.slice(0, 479, -1, 480).0;
/// assert_eq!(flipped.strides(), [-1920, 3, 1]);
/// assert!(!flipped.is_contiguous(Order::C));
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: Dims<usize>,
    strides: Dims<isize>,
    numel: usize,
    /// The offset of the lowest element, and of one past the highest.
    low: isize,
    high: isize,
}

impl Layout {
    /// A compact array of this shape, without gaps.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`](crate::ErrorKind::Rank) above [`MAX_NDIM`](crate::MAX_NDIM) axes,
    /// [`ErrorKind::Overflow`](crate::ErrorKind::Overflow) when the number of elements does not fit.
    pub fn compact(shape: &[usize], order: Order) -> Result<Self> {
        walk::<_, isize>(shape, Spacing::Compact(order))
    }

    /// An array of this shape and these strides, in elements.
    ///
    /// # Errors
    ///
    /// As [`compact`](Self::compact); [`ErrorKind::Strides`](crate::ErrorKind::Strides) when there is not one stride for
    /// each axis; [`ErrorKind::Overflow`](crate::ErrorKind::Overflow) when an element would be out of reach of `isize`.
    pub fn strided(shape: &[usize], strides: &[isize]) -> Result<Self> {
        walk(shape, Spacing::Elements(strides))
    }

    /// An array of this shape whose strides are counted in bytes, for elements of `item` bytes.
    ///
    /// # Errors
    ///
    /// As [`strided`](Self::strided); [`ErrorKind::Strides`](crate::ErrorKind::Strides), with the axis, for a stride that
    /// is no multiple of `item` on an axis where it matters.
    pub fn strided_in_bytes(shape: &[usize], strides: &[isize], item: usize) -> Result<Self> {
        walk(shape, Spacing::Bytes(strides, item))
    }

    /// An array as it is claimed.
    #[inline]
    pub(crate) fn claimed(shape: &[i64], spacing: Spacing<'_, i64>) -> Result<Self> {
        walk(shape, spacing)
    }

    /// The strides that a compact array of this shape has. An extent of 0 counts as 1, as in `NumPy`; where the product of
    /// an empty array's other extents does not fit, the stride is 0, which is as good as any.
    fn compact_strides(&self, order: Order) -> Dims<isize> {
        let mut compact = Dims::zeroed(self.shape.len());
        let mut running = Some(1_isize);
        let mut step = |(stride, extent): (&mut isize, &usize)| {
            *stride = running.unwrap_or(0);
            let extent = isize::try_from((*extent).max(1)).ok();
            running = running.zip(extent).and_then(|(running, extent)| running.checked_mul(extent));
        };
        let axes = compact.iter_mut().zip(&*self.shape);
        match order {
            Order::C => axes.rev().for_each(&mut step),
            Order::F => axes.for_each(&mut step),
        }
        compact
    }

    /// The extents.
    #[inline]
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The strides, in elements.
    #[inline]
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The number of axes.
    #[inline]
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Whether there is no element.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numel == 0
    }

    /// The offsets of the lowest and of one past the highest element, in elements from element \[0, …, 0\].
    ///
    /// An empty array reaches nothing: `0..0`.
    #[inline]
    #[must_use]
    pub fn offsets(&self) -> Range<isize> {
        self.low..self.high
    }

    /// Whether the elements lie without gaps in this order. True for an empty array.
    #[inline]
    #[must_use]
    pub fn is_contiguous(&self, order: Order) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut expected = 1;
        let mut matches = |axis: usize| {
            let extent = self.shape[axis];
            let fits = extent == 1 || self.strides[axis] == expected;
            expected *= extent as isize;
            fits
        };
        match order {
            Order::C => (0..self.ndim()).rev().all(&mut matches),
            Order::F => (0..self.ndim()).all(&mut matches),
        }
    }

    /// Whether it can be told that no two indices meet in one element, so that parts may be written independently.
    ///
    /// A stride of 0 repeats one element; overlapping windows share some. Layouts are judged by their sorted strides,
    /// which settles everything that slicing, transposing and flipping can make; an exotic layout may be refused.
    #[must_use]
    pub fn is_injective(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut axes: Vec<(usize, usize)> = self
            .shape
            .iter()
            .zip(&*self.strides)
            .filter(|(extent, _)| **extent > 1)
            .map(|(extent, stride)| (stride.unsigned_abs(), *extent))
            .collect();
        axes.sort_unstable();
        let mut reach = 0_usize;
        axes.iter().all(|&(stride, extent)| {
            let apart = stride > reach;
            reach += stride * (extent - 1);
            apart
        })
    }
}
