//! Shapes and strides: defaults, contiguity, offsets, slices. All arithmetic is checked.

pub(crate) mod axes;
pub(crate) mod errors;
pub(crate) mod order;
pub(crate) mod parts;

use core::cmp::Reverse;
use core::fmt;
use core::ops::Range;

use crate::array::dims::{Dims, INLINE, MAX_NDIM};
use crate::array::layout::errors::{count_mismatch, not_contiguous, out_of_reach, too_large, too_many};
use crate::array::layout::order::{Order, contiguous_strides, is_contiguous};
use crate::error::{Error, ErrorKind, Result};

/// A checked shape with strides in elements.
///
/// These hold for every value:
///
/// - It has at most [`MAX_NDIM`] axes.
/// - The number of elements fits `isize`.
/// - The lowest and the highest element offset, and their distance, fit `isize`.
///
/// The stride of an axis of extent 1 may have any value. So may all strides of an array without elements.
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
    shape: Dims<usize>,
    strides: Dims<isize>,
    numel: usize,
}

impl Layout {
    /// A placeholder without axes and elements.
    pub(crate) const EMPTY: Self = Self::inline(0, [0; INLINE], [0; INLINE], 0);

    /// Creates the contiguous layout of this shape.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`] above [`MAX_NDIM`] axes, [`ErrorKind::Overflow`] if the number of elements does not fit
    /// `isize`.
    #[inline]
    pub fn contiguous(shape: &[usize], order: Order) -> Result<Self> {
        let numel = numel(shape)?;
        Ok(Self { shape: shape.into(), strides: contiguous_strides(shape, order), numel })
    }

    /// Creates a layout from a shape and strides in elements.
    ///
    /// # Errors
    ///
    /// As [`contiguous`](Self::contiguous); [`ErrorKind::Strides`] if the number of strides is not the number of axes;
    /// [`ErrorKind::Overflow`] if an offset between two elements does not fit `isize`.
    #[inline]
    pub fn strided(shape: &[usize], strides: &[isize]) -> Result<Self> {
        let numel = numel(shape)?;
        if strides.len() != shape.len() {
            return Err(count_mismatch(strides.len(), shape.len()));
        }
        let layout = Self { shape: shape.into(), strides: normalized_strides(shape, strides, numel), numel };
        if layout.offsets_checked().is_none() {
            return Err(out_of_reach(layout.shape(), layout.strides()));
        }
        Ok(layout)
    }

    /// Creates a layout from checked parts.
    #[inline]
    pub(crate) const fn inline(
        ndim: usize,
        shape: [usize; INLINE],
        strides: [isize; INLINE],
        numel: usize,
    ) -> Self {
        Self { shape: Dims::inline(ndim, shape), strides: Dims::inline(ndim, strides), numel }
    }

    /// Creates a layout from a shape and strides in bytes, for elements of `item` bytes.
    ///
    /// # Errors
    ///
    /// As [`strided`](Self::strided); [`ErrorKind::Strides`] if a stride is not a multiple of `item`, unless the axis
    /// has extent 1 or the array no elements.
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
                // `strided` replaces a negative stride that is never used by the contiguous one.
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
        self.shape().len()
    }

    /// The number of elements.
    #[inline]
    #[must_use]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// Whether the array has no elements.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numel == 0
    }

    /// The offsets of the lowest element and of one past the highest, in elements from element \[0, …, 0\].
    ///
    /// An empty array has the range `0..0`.
    #[inline]
    #[must_use]
    pub fn offsets(&self) -> Range<isize> {
        // All constructors reject offsets that do not fit.
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
        self.is_empty() || is_contiguous(self.shape(), self.strides(), order)
    }

    /// Returns an error with advice if the layout is not contiguous in this order.
    #[inline]
    pub(crate) fn check_contiguous(&self, order: Order) -> Result<()> {
        if self.is_contiguous(order) {
            Ok(())
        } else {
            Err(not_contiguous(self.shape(), self.strides(), order))
        }
    }

    /// Whether every index has its own element, so that parts can be written independently.
    ///
    /// A stride of 0 repeats an element; overlapping windows share elements. The test compares sorted strides. It
    /// accepts all layouts made by slicing, transposing and flipping, but may reject valid layouts of other kinds.
    #[must_use]
    pub fn is_injective(&self) -> bool {
        // The common case, without the list and the sort.
        if self.is_contiguous(Order::C) {
            return true;
        }
        let repeats = |(extent, stride): (&usize, &isize)| *extent > 1 && *stride == 0;
        !self.shape.iter().zip(&*self.strides).any(repeats) && self.axes_apart().is_some()
    }

    /// Returns the axes with more than one index and a stride other than 0, by increasing stride. Returns `None` if two
    /// indices of these axes may share an element. The array has elements.
    pub(crate) fn axes_apart(&self) -> Option<Vec<usize>> {
        let stride = |at: usize| self.strides[at].unsigned_abs();
        let mut axes: Vec<usize> =
            (0..self.ndim()).filter(|at| self.shape[*at] > 1 && stride(*at) != 0).collect();
        axes.sort_by_key(|at| (stride(*at), Reverse(*at)));
        let mut reach = 0_usize;
        let mut is_apart = |at: &usize| {
            let is_apart = stride(*at) > reach;
            reach += stride(*at) * (self.shape[*at] - 1);
            is_apart
        };
        axes.iter().all(&mut is_apart).then_some(axes)
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
        let Self { shape, strides, numel } = self;
        let mut shown = f.debug_struct("Layout");
        shown.field("shape", shape).field("strides", strides).field("numel", numel).finish()
    }
}

/// Replaces negative strides that are never used by those of a contiguous array. A stride is not used if its axis has
/// extent 1 or the array has no elements. Some consumers reject a negative stride even there. Other unused strides
/// stay, because some consumers derive the memory order from them.
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

/// The product of the extents, which must fit `isize`. It is 0 if any extent is 0.
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

/// The product of the extents, or `None` if it does not fit `isize`. It is 0 if any extent is 0.
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

/// The offsets of the lowest element and of one past the highest, or `None` if one of them or their distance does not
/// fit. The product of the extents must fit `isize` and not be 0.
#[inline]
pub(crate) fn offsets(axes: impl Iterator<Item = (usize, isize)>) -> Option<Range<isize>> {
    let (mut low, mut high) = (0_isize, 0_isize);
    for (extent, stride) in axes {
        // The stride of an axis of extent 1 is multiplied by 0.
        let reach = (extent as isize - 1).checked_mul(stride)?;
        low = low.checked_add(reach.min(0))?;
        high = high.checked_add(reach.max(0))?;
    }
    let end = high.checked_add(1)?;
    // A view may begin at the lowest element; the highest must be reachable from there.
    end.checked_sub(low)?;
    Some(low..end)
}
