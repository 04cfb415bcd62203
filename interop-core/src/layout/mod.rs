//! Shapes and strides: defaults, contiguity, reachable range, slicing. All arithmetic is checked.

mod reshape;

use core::ops::Range;

use crate::dims::{Dims, MAX_NDIM};
use crate::error::{Error, ErrorKind, Result};

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
/// Having one means: at most [`MAX_NDIM`] axes; the number of elements fits `isize`; the lowest and highest element offset
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
}

impl Layout {
    /// A compact array of this shape, without gaps.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`] above [`MAX_NDIM`] axes, [`ErrorKind::Overflow`] when the number of elements does not fit.
    #[inline]
    pub fn compact(shape: &[usize], order: Order) -> Result<Self> {
        let numel = numel(shape)?;
        let mut strides = Dims::zeroed(shape.len());
        fill_compact(&mut strides, shape, order);
        Ok(Self { shape: shape.into(), strides, numel })
    }

    /// An array of this shape and these strides, in elements.
    ///
    /// # Errors
    ///
    /// As [`compact`](Self::compact); [`ErrorKind::Strides`] when there is not one stride for each axis;
    /// [`ErrorKind::Overflow`] when an element would be out of reach of `isize`.
    #[inline]
    pub fn strided(shape: &[usize], strides: &[isize]) -> Result<Self> {
        let numel = numel(shape)?;
        if strides.len() != shape.len() {
            return Err(count_mismatch(strides.len(), shape.len()));
        }
        let mut layout = Self { shape: shape.into(), strides: strides.into(), numel };
        layout.settle_idle_strides();
        layout.offsets_checked().ok_or_else(|| out_of_reach(&layout.shape, &layout.strides))?;
        Ok(layout)
    }

    /// An array of this shape whose strides are counted in bytes, for elements of `item` bytes.
    ///
    /// # Errors
    ///
    /// As [`strided`](Self::strided); [`ErrorKind::Strides`], with the axis, for a stride that is no multiple of `item`
    /// on an axis where it matters.
    pub fn strided_in_bytes(shape: &[usize], strides: &[isize], item: usize) -> Result<Self> {
        if strides.len() != shape.len() {
            return Err(count_mismatch(strides.len(), shape.len()));
        }
        let empty = shape.contains(&0);
        let item = isize::try_from(item.max(1)).unwrap_or(isize::MAX);
        let mut elements = Dims::zeroed(strides.len());
        for (axis, (&extent, &stride)) in shape.iter().zip(strides).enumerate() {
            elements[axis] = match (stride % item, empty || extent == 1) {
                (0, _) => stride / item,
                // A negative stride on an idle axis is replaced by the compact one.
                (_, true) => -1,
                (_, false) => {
                    let allowed = format!("a multiple of the item size, {item} bytes");
                    let found = format!("{stride} bytes");
                    return Err(Error::new(
                        ErrorKind::Strides,
                        format_args!("strides[{axis}]"),
                        found,
                        allowed,
                    ));
                }
            };
        }
        Self::strided(shape, &elements)
    }

    /// Gives idle axes that run backwards the stride of a compact array: a negative number there says nothing, and
    /// consumers trip over it. Other strides of idle axes are kept, because some consumers read an order from them.
    fn settle_idle_strides(&mut self) {
        if self.strides.iter().all(|stride| *stride >= 0) {
            return;
        }
        let compact = self.compact_strides();
        for axis in 0..self.shape.len() {
            if self.strides[axis] < 0 && (self.shape[axis] == 1 || self.numel == 0) {
                self.strides[axis] = compact[axis];
            }
        }
    }

    /// The strides that a compact array of this shape has, in C order.
    fn compact_strides(&self) -> Dims<isize> {
        let mut compact = Dims::zeroed(self.shape.len());
        fill_compact(&mut compact, &self.shape, Order::C);
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
        // Every constructor refuses what does not fit.
        self.offsets_checked().unwrap_or(0..0)
    }

    #[inline]
    fn offsets_checked(&self) -> Option<Range<isize>> {
        if self.is_empty() {
            return Some(0..0);
        }
        let (mut low, mut high) = (0_isize, 0_isize);
        for (&extent, &stride) in self.shape.iter().zip(&*self.strides) {
            if extent > 1 {
                // An extent is at most `numel`, which fits.
                let reach = (extent as isize - 1).checked_mul(stride)?;
                let end = if reach < 0 { &mut low } else { &mut high };
                *end = end.checked_add(reach)?;
            }
        }
        Some(low..high.checked_add(1)?)
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

/// The product of the extents, which must fit `isize`; 0 as soon as one extent is 0.
#[inline]
fn numel(shape: &[usize]) -> Result<usize> {
    if shape.len() > MAX_NDIM {
        let found = format_args!("{} axes", shape.len());
        return Err(Error::new(ErrorKind::Rank, "shape", found, format_args!("{MAX_NDIM} axes at most")));
    }
    let mut product = Some(1_usize);
    for &extent in shape {
        if extent == 0 {
            return Ok(0);
        }
        product = product.and_then(|product| product.checked_mul(extent));
    }
    product.filter(|product| isize::try_from(*product).is_ok()).ok_or_else(|| {
        let found = format_args!("{shape:?}");
        Error::new(ErrorKind::Overflow, "shape", found, "extents whose product fits the address space")
    })
}

/// Writes the strides of a compact array. An extent of 0 counts as 1, as in NumPy; where the product of an empty array's
/// other extents does not fit, its strides are 0, which is as good as any.
#[inline]
fn fill_compact(strides: &mut [isize], shape: &[usize], order: Order) {
    let mut running = Some(1_isize);
    let mut step = |axis: usize| {
        strides[axis] = running.unwrap_or(0);
        let extent = isize::try_from(shape[axis].max(1)).ok();
        running = running.zip(extent).and_then(|(running, extent)| running.checked_mul(extent));
    };
    match order {
        Order::C => (0..shape.len()).rev().for_each(&mut step),
        Order::F => (0..shape.len()).for_each(&mut step),
    }
}

#[cold]
fn count_mismatch(found: usize, expected: usize) -> Error {
    let allowed = format_args!("{expected}, one for each axis");
    Error::new(ErrorKind::Strides, "strides", format_args!("{found} strides"), allowed)
}

#[cold]
fn out_of_reach(shape: &[usize], strides: &[isize]) -> Error {
    let found = format_args!("{strides:?} for shape {shape:?}");
    Error::new(ErrorKind::Overflow, "strides", found, "offsets that fit the address space")
}
