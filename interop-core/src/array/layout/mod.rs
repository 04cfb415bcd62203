//! Shapes and strides: defaults, contiguity, reachable range, slicing. All arithmetic is checked.

pub(crate) mod axes;
pub(crate) mod errors;
pub(crate) mod order;
pub(crate) mod reshape;

use core::fmt;
use core::ops::Range;

use crate::array::dims::{Dims, INLINE, MAX_NDIM};
use crate::array::layout::axes::Axes;
use crate::array::layout::errors::{count_mismatch, not_contiguous, out_of_reach, too_large, too_many};
use crate::array::layout::order::{Order, contiguous_strides, fill_contiguous};
use crate::error::{Error, ErrorKind, Result};

/// A shape with strides in elements, of which the products and sums are known not to overflow.
///
/// Having one means: at most [`MAX_NDIM`] axes; the number of elements fits `isize`; the lowest and highest element offset
/// and the distance between them fit `isize`. An axis of extent 1, and every axis of an array without elements, puts no
/// condition on its stride.
///
/// ```
/// use interop_core::{Layout, Order};
///
/// let image = Layout::contiguous(&[480, 640, 3], Order::C)?;
/// assert_eq!(image.strides(), [1920, 3, 1]);
/// let flipped = image.slice(0, 479, -1, 480).0;
/// assert_eq!(flipped.strides(), [-1920, 3, 1]);
/// assert!(!flipped.is_contiguous(Order::C));
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Layout {
    axes: Axes,
    numel: usize,
}

impl Layout {
    /// No axes and no elements: the placeholder of a layout that has yet to come.
    pub(crate) const EMPTY: Self = Self { axes: Axes::NONE, numel: 0 };

    /// A compact array of this shape, without gaps.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`] above [`MAX_NDIM`] axes, [`ErrorKind::Overflow`] when the number of elements does not fit.
    #[inline]
    pub fn contiguous(shape: &[usize], order: Order) -> Result<Self> {
        let numel = numel(shape)?;
        Ok(Self::filled(shape.len(), numel, |extents, strides| {
            extents.copy_from_slice(shape);
            fill_contiguous(strides, |axis| shape[axis], order);
        }))
    }

    /// An array of this shape and these strides, in elements.
    ///
    /// # Errors
    ///
    /// As [`contiguous`](Self::contiguous); [`ErrorKind::Strides`] when there is not one stride for each axis;
    /// [`ErrorKind::Overflow`] when an element would be out of reach of `isize`, counted from any other element.
    #[inline]
    pub fn strided(shape: &[usize], strides: &[isize]) -> Result<Self> {
        let numel = numel(shape)?;
        if strides.len() != shape.len() {
            return Err(count_mismatch(strides.len(), shape.len()));
        }
        let layout = Self::of(shape, &normalized_strides(shape, strides, numel), numel);
        if layout.offsets_checked().is_none() {
            return Err(out_of_reach(layout.shape(), layout.strides()));
        }
        Ok(layout)
    }

    /// A layout of which everything has been checked.
    #[inline]
    pub(crate) fn inline(
        ndim: usize,
        shape: [usize; INLINE],
        strides: [isize; INLINE],
        numel: usize,
    ) -> Self {
        Self { axes: Axes::Inline { ndim, shape, strides }, numel }
    }

    /// The layout that `fill` writes over zeros, of which product and sums have been checked.
    #[inline]
    pub(crate) fn filled(ndim: usize, numel: usize, fill: impl FnOnce(&mut [usize], &mut [isize])) -> Self {
        Self { axes: Axes::filled(ndim, fill), numel }
    }

    /// The layout of these extents and strides, of which product and sums have been checked.
    fn of(shape: &[usize], strides: &[isize], numel: usize) -> Self {
        Self::filled(shape.len(), numel, |extents, steps| {
            extents.copy_from_slice(shape);
            steps.copy_from_slice(strides);
        })
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

    /// The extents.
    #[inline]
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.axes.shape()
    }

    /// The strides, in elements.
    #[inline]
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        self.axes.strides()
    }

    /// The number of axes.
    #[inline]
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.shape().len()
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
        offsets(self.shape().iter().copied().zip(self.strides().iter().copied()))
    }

    /// Whether the elements lie without gaps in this order. True for an empty array.
    #[inline]
    #[must_use]
    pub fn is_contiguous(&self, order: Order) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut expected = 1;
        let mut matches = |(extent, stride): (&usize, &isize)| {
            let fits = *extent == 1 || *stride == expected;
            expected *= *extent as isize;
            fits
        };
        let mut axes = self.shape().iter().zip(self.strides());
        match order {
            Order::C => axes.rev().all(&mut matches),
            Order::F => axes.all(&mut matches),
        }
    }

    /// Refuses a layout that is not compact in this order, and says how to go on.
    #[inline]
    pub(crate) fn check_contiguous(&self, order: Order) -> Result<()> {
        if self.is_contiguous(order) {
            Ok(())
        } else {
            Err(not_contiguous(self.shape(), self.strides(), order))
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
            .shape()
            .iter()
            .zip(self.strides())
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

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        (self.shape(), self.strides()) == (other.shape(), other.strides())
    }
}

impl Eq for Layout {}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axes: _, numel } = self;
        let mut shown = f.debug_struct("Layout");
        shown.field("shape", &self.shape()).field("strides", &self.strides()).field("numel", numel).finish()
    }
}

/// The strides, with those of a compact array in place of negative ones on idle axes. An axis is idle when no step is taken
/// along it: its extent is 1, or the array has no elements. A negative stride means nothing there, and consumers trip over
/// it; other strides of idle axes are kept, because some consumers read an order from them.
fn normalized_strides(shape: &[usize], strides: &[isize], numel: usize) -> Dims<isize> {
    let mut normalized_strides = Dims::from(strides);
    if strides.iter().any(|stride| *stride < 0) {
        let compact = contiguous_strides(shape, Order::C);
        for (axis, stride) in normalized_strides.iter_mut().enumerate() {
            if *stride < 0 && (shape[axis] == 1 || numel == 0) {
                *stride = compact[axis];
            }
        }
    }
    normalized_strides
}

/// The product of the extents, which must fit `isize`; 0 as soon as one extent is 0.
#[inline]
pub(crate) fn numel(shape: &[usize]) -> Result<usize> {
    if shape.len() > MAX_NDIM {
        return Err(too_many(shape.len()));
    }
    match product(shape.iter().copied()) {
        Some(numel) => Ok(numel),
        None => Err(too_large(shape)),
    }
}

/// The product of the extents, `None` where it does not fit `isize`; 0 as soon as one extent is 0.
#[inline]
pub(crate) fn product(extents: impl Iterator<Item = usize>) -> Option<usize> {
    let (mut product, mut fits) = (1_usize, true);
    for extent in extents {
        if extent == 0 {
            return Some(0);
        }
        let (next, overflows) = product.overflowing_mul(extent);
        product = next;
        fits &= !overflows;
    }
    (fits && isize::try_from(product).is_ok()).then_some(product)
}

/// The offsets of the lowest and of one past the highest of some elements, `None` where one or their distance does not
/// fit. The product of the extents fits `isize` and is not 0.
#[inline]
pub(crate) fn offsets(axes: impl Iterator<Item = (usize, isize)>) -> Option<Range<isize>> {
    let (mut low, mut high) = (0_isize, 0_isize);
    for (extent, stride) in axes {
        // An axis of extent 1 reaches nowhere, whatever its stride is.
        let reach = (extent as isize - 1).checked_mul(stride)?;
        low = low.checked_add(reach.min(0))?;
        high = high.checked_add(reach.max(0))?;
    }
    let end = high.checked_add(1)?;
    // A view may begin at the lowest element, and then reaches the highest from there.
    end.checked_sub(low)?;
    Some(low..end)
}
