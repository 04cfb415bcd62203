//! Shapes and strides: defaults, contiguity, offsets, slices. All arithmetic is checked.
#![expect(clippy::inline_always, reason = "a constant rank in the caller unrolls the loops")]

pub(crate) mod axes;
pub(crate) mod errors;
pub(crate) mod order;
pub(crate) mod parts;

use core::cmp::Reverse;
use core::fmt::{self, Debug, Display};
use core::ops::Range;

use crate::array::dims::{Dims, MAX_NDIM};
use crate::array::layout::errors::{
    count_mismatch, negative, no_multiple, out_of_reach, too_large, too_many, too_wide,
};
use crate::array::layout::order::Order;
use crate::error::{Cure, Error, ErrorKind, Result, text};

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
/// use interop_core::protocols::Layout;
/// use interop_core::Order;
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
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        Self { shape: Dims::empty(0), strides: Dims::empty(0), numel: 0 }
    }

    /// Makes it a layout of no elements. In place: see `ImportSlot`.
    #[inline]
    pub(crate) fn forget_elements(&mut self) {
        if self.shape.is_empty() {
            // Without axes there would be one element.
            (self.shape, self.strides) = (Dims::zeroed(1), Dims::zeroed(1));
        }
        self.shape.fill(0);
        self.numel = 0;
    }

    /// Creates the contiguous layout of this shape.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Rank`](crate::ErrorKind::Rank) above [`MAX_NDIM`] axes;
    /// [`ErrorKind::Overflow`](crate::ErrorKind::Overflow) if the number of elements does not fit `isize`.
    #[inline]
    pub fn contiguous(shape: &[usize], order: Order) -> Result<Self> {
        Self::from_strides(shape, StrideList::<isize>::Contiguous(order))
    }

    /// Creates a layout from a shape and strides in elements.
    ///
    /// # Errors
    ///
    /// As [`contiguous`](Self::contiguous); [`ErrorKind::Strides`](crate::ErrorKind::Strides) if the number of strides is not
    /// the number of axes; [`ErrorKind::Overflow`](crate::ErrorKind::Overflow) if an offset between two elements does not fit
    /// `isize`.
    #[inline]
    pub fn strided(shape: &[usize], strides: &[isize]) -> Result<Self> {
        Self::from_strides(shape, StrideList::Elements(strides))
    }

    /// Creates a layout from a shape and strides in bytes, for elements of `item` bytes.
    ///
    /// # Errors
    ///
    /// As [`strided`](Self::strided); [`ErrorKind::Strides`](crate::ErrorKind::Strides) if a stride is not a multiple of
    /// `item`, unless the axis has extent 1 or the array no elements.
    #[doc(hidden)]
    pub fn strided_in_bytes(shape: &[usize], strides: &[isize], item: usize) -> Result<Self> {
        Self::from_strides(shape, StrideList::Elements(&in_elements(shape, strides, item)?))
    }

    #[inline]
    pub(crate) fn from_strides<E: ShapeNumber, S: StrideNumber>(
        shape: &[E],
        steps: StrideList<'_, S>,
    ) -> Result<Self> {
        let (numel, _) = Self::check(shape, steps)?;
        Ok(Self::from_checked(shape, steps, numel))
    }

    /// The rules of every layout. Returns the number of elements, and the offsets of the lowest element and of one past the
    /// highest.
    ///
    /// # Errors
    ///
    /// As [`strided`](Self::strided); [`ErrorKind::Shape`] for a negative extent.
    #[inline(always)]
    pub(crate) fn check<E: ShapeNumber, S: StrideNumber>(
        shape: &[E],
        steps: StrideList<'_, S>,
    ) -> Result<(usize, Range<isize>)> {
        if shape.len() > MAX_NDIM {
            return Err(too_many(shape.len()));
        }
        let extents = || shape.iter().map(|extent| TryInto::<usize>::try_into(*extent));
        for (axis, extent) in extents().enumerate() {
            if extent.is_err() {
                return Err(negative(axis, shape[axis]));
            }
        }
        let extents = || extents().map(|extent| extent.unwrap_or(0));
        let Some(numel) = product(extents()) else { return Err(too_large(shape)) };
        let StrideList::Elements(strides) = steps else { return Ok((numel, 0..numel as isize)) };
        if strides.len() != shape.len() {
            return Err(count_mismatch(strides.len(), shape.len()));
        }
        for (axis, stride) in strides.iter().enumerate() {
            if TryInto::<isize>::try_into(*stride).is_err() {
                return Err(too_wide(axis, *stride));
            }
        }
        if numel == 0 {
            return Ok((0, 0..0));
        }
        let steps = strides.iter().map(|stride| (*stride).try_into().unwrap_or(0));
        match offset_range(extents().zip(steps)) {
            Some(offsets) => Ok((numel, offsets)),
            None => Err(out_of_reach(shape, strides)),
        }
    }

    /// Creates the layout of a shape and strides that [`check`](Self::check) has accepted.
    #[inline(always)]
    pub(crate) fn from_checked<E: ShapeNumber, S: StrideNumber>(
        shape: &[E],
        steps: StrideList<'_, S>,
        numel: usize,
    ) -> Self {
        let strides = match steps {
            StrideList::Contiguous(order) => contiguous_strides(shape, order),
            StrideList::Elements(strides) if has_negative(strides) => used_strides(shape, strides, numel),
            StrideList::Elements(strides) => {
                Dims::from_fn(strides.len(), |axis| strides[axis].try_into().unwrap_or(0))
            }
        };
        Self { shape: Dims::from_fn(shape.len(), |axis| shape[axis].try_into().unwrap_or(0)), strides, numel }
    }

    /// Replaces the layout by that of a shape and strides that [`check`](Self::check) has accepted, in place (see [`Dims::set`])
    /// unless it is contiguous by definition or has negative strides.
    #[inline(always)]
    pub(crate) fn set<E: ShapeNumber, S: StrideNumber>(
        &mut self,
        shape: &[E],
        steps: StrideList<'_, S>,
        numel: usize,
    ) {
        match steps {
            StrideList::Elements(strides) if !has_negative(strides) => {
                self.shape.set(shape.len(), |axis| shape[axis].try_into().unwrap_or(0));
                self.strides.set(strides.len(), |axis| strides[axis].try_into().unwrap_or(0));
                self.numel = numel;
            }
            _ => *self = Self::from_checked(shape, steps, numel),
        }
    }

    /// The extents.
    #[inline]
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The strides, in elements. They are always present.
    #[inline]
    #[must_use]
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The number of axes.
    #[doc(hidden)]
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
    pub(crate) fn is_empty(&self) -> bool {
        self.numel == 0
    }

    /// The offsets of the lowest element and of one past the highest, in elements from element \[0, …, 0\].
    ///
    /// An empty array has the range `0..0`.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn offsets(&self) -> Range<isize> {
        if self.is_empty() {
            return 0..0;
        }
        // All constructors reject offsets that do not fit.
        offset_range(self.shape().iter().copied().zip(self.strides().iter().copied())).unwrap_or(0..0)
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

#[inline(always)]
fn has_negative<S: StrideNumber>(strides: &[S]) -> bool {
    strides.iter().any(|stride| matches!((*stride).try_into(), Ok(..0)))
}

/// The strides, with those of a contiguous array in place of negative ones that are never used.
///
/// A stride is not used if its axis has extent 1 or the array has no elements. Some consumers reject a negative stride even
/// there. Other unused strides stay, because some consumers derive the memory order from them.
#[cold]
fn used_strides<E: ShapeNumber, S: StrideNumber>(shape: &[E], strides: &[S], numel: usize) -> Dims<isize> {
    let contiguous = contiguous_strides(shape, Order::C);
    Dims::from_fn(shape.len(), |axis| match strides[axis].try_into().unwrap_or(0) {
        ..0 if numel == 0 || matches!(shape[axis].try_into(), Ok(1_usize)) => contiguous[axis],
        stride => stride,
    })
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

/// An extent, as this crate or as a protocol counts it.
pub(crate) trait ShapeNumber: Copy + Display + Debug + TryInto<usize> + TryInto<isize> {}

impl<E: Copy + Display + Debug + TryInto<usize> + TryInto<isize>> ShapeNumber for E {}

/// A stride, as this crate or as a protocol counts it.
pub(crate) trait StrideNumber: Copy + Display + Debug + TryInto<isize> {}

impl<S: Copy + Display + Debug + TryInto<isize>> StrideNumber for S {}

/// The strides of a layout to be made.
#[derive(Clone, Copy)]
pub(crate) enum StrideList<'a, S> {
    Contiguous(Order),
    Elements(&'a [S]),
}

/// Converts strides in bytes to elements of `item` bytes. A stride that is never used need not be a multiple: it becomes
/// negative, for which [`Layout::from_checked`] takes another.
pub(crate) fn in_elements<E: ShapeNumber, S: StrideNumber>(
    shape: &[E],
    strides: &[S],
    item: usize,
) -> Result<Dims<isize>> {
    if strides.len() != shape.len() {
        return Err(count_mismatch(strides.len(), shape.len()));
    }
    let extent = |axis: usize| shape[axis].try_into().unwrap_or(usize::MAX);
    let is_empty = (0..shape.len()).any(|axis| extent(axis) == 0);
    let item = isize::try_from(item.max(1)).unwrap_or(isize::MAX);
    let mut elements = Dims::zeroed(strides.len());
    for (axis, element) in elements.iter_mut().enumerate() {
        let stride: isize = strides[axis].try_into().map_err(|_| too_wide(axis, strides[axis]))?;
        *element = match stride % item {
            0 => stride / item,
            _ if is_empty || extent(axis) == 1 => -1,
            _ => return Err(no_multiple(axis, stride, item)),
        };
    }
    Ok(elements)
}

/// The product of the extents, or `None` if it does not fit `isize`. It is 0 if any extent is 0.
#[inline(always)]
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
#[inline(always)]
pub(crate) fn offset_range(axes: impl Iterator<Item = (usize, isize)>) -> Option<Range<isize>> {
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

/// The strides of a contiguous array of this shape. As in NumPy, an extent of 0 counts as 1. If the product of an empty
/// array's other extents overflows, the stride is 0.
#[inline(always)]
pub(crate) fn contiguous_strides<E: Copy + TryInto<isize>>(shape: &[E], order: Order) -> Dims<isize> {
    let mut strides = Dims::zeroed(shape.len());
    let mut next = Some(1_isize);
    for step in 0..shape.len() {
        let axis = if order == Order::F { step } else { shape.len() - 1 - step };
        strides[axis] = next.unwrap_or(0);
        next = next.and_then(|stride| stride.checked_mul(shape[axis].try_into().ok()?.max(1)));
    }
    strides
}

/// Whether these elements lie without gaps in this order. There must be elements.
#[inline]
pub(crate) fn is_contiguous(shape: &[usize], strides: &[isize], order: Order) -> bool {
    let mut expected = 1;
    let mut matches = |(extent, stride): (&usize, &isize)| {
        let fits = *extent == 1 || *stride == expected;
        expected *= *extent as isize;
        fits
    };
    let mut axes = shape.iter().zip(strides);
    match order {
        Order::C => axes.rev().all(&mut matches),
        Order::F => axes.all(&mut matches),
    }
}

#[cold]
fn not_contiguous(shape: &[usize], strides: &[isize], order: Order) -> Error {
    let compact = contiguous_strides(shape, order);
    let differs = |axis: &usize| shape[*axis] > 1 && strides[*axis] != compact[*axis];
    let axis = (0..shape.len()).find(differs).unwrap_or(0);
    let found = text!("{} (strides {strides:?})", strides[axis]);
    let allowed = text!("{}, which makes the array {order:?}-contiguous; copy the array", compact[axis]);
    let error = Error::new(ErrorKind::Strides, format_args!("strides[{axis}]"), found, allowed);
    error.with_rust_hint("or give the struct a strides field").with_python_hint(match order {
        Order::C => Cure::COrder,
        Order::F => Cure::FOrder,
    })
}
