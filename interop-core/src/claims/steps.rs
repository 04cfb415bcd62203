//! Extents and strides as they are claimed: lists of a known rank or of any, and orders.

use core::fmt::Debug;
use std::borrow::ToOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Order, count_mismatch, fill_compact, offsets, out_of_reach};

/// A list of numbers.
pub(crate) trait List: AsRef<[i64]> + ToOwned<Owned: AsRef<[i64]> + Debug> {
    /// Whether the compiler knows how many.
    const RANKED: bool;
}

impl<const N: usize> List for [i64; N] {
    const RANKED: bool = true;
}

impl List for [i64] {
    const RANKED: bool = false;
}

/// Strides in elements, or an [`Order`] for those of a compact array.
pub(crate) trait Steps: Copy {
    /// The same for a known number of axes.
    type Ranked<const N: usize>: Steps;

    /// The same for `N` axes; `None` when there are others.
    fn ranked<const N: usize>(self) -> Option<Self::Ranked<N>>;

    /// The offsets of the lowest and of one past the highest of `numel` elements.
    fn offsets<L: List + ?Sized>(self, shape: &L, numel: usize) -> Result<(isize, isize)>;

    /// Writes the strides, which have been checked.
    fn keep<L: List + ?Sized>(self, shape: &L, numel: usize, strides: &mut [isize]);
}

impl Steps for Order {
    type Ranked<const N: usize> = Self;

    #[inline]
    fn ranked<const N: usize>(self) -> Option<Self> {
        Some(self)
    }

    #[inline]
    fn offsets<L: List + ?Sized>(self, _shape: &L, numel: usize) -> Result<(isize, isize)> {
        Ok((0, numel as isize))
    }

    #[inline]
    fn keep<L: List + ?Sized>(self, shape: &L, _numel: usize, strides: &mut [isize]) {
        let shape = shape.as_ref();
        fill_compact(strides, |axis| shape[axis] as usize, self);
    }
}

impl<'a, S: List + ?Sized> Steps for &'a S {
    type Ranked<const N: usize> = &'a [i64; N];

    #[inline]
    fn ranked<const N: usize>(self) -> Option<&'a [i64; N]> {
        self.as_ref().try_into().ok()
    }

    #[inline]
    fn offsets<L: List + ?Sized>(self, shape: &L, numel: usize) -> Result<(isize, isize)> {
        let (extents, strides) = (shape.as_ref(), self.as_ref());
        for (axis, stride) in strides.iter().enumerate() {
            if isize::try_from(*stride).is_err() {
                return Err(too_wide(axis, *stride));
            }
        }
        if strides.len() != extents.len() {
            return Err(count_mismatch(strides.len(), extents.len()));
        }
        if numel == 0 {
            return Ok((0, 0));
        }
        if forward(strides) {
            return match highest(extents, strides) {
                Some(high) => Ok((0, high)),
                None => Err(out_of_reach(&shape.to_owned(), &self.to_owned())),
            };
        }
        let axes = extents.iter().zip(strides).map(|(extent, stride)| (*extent as usize, *stride as isize));
        match offsets(axes) {
            Some(offsets) => Ok((offsets.start, offsets.end)),
            None => Err(out_of_reach(&shape.to_owned(), &self.to_owned())),
        }
    }

    #[inline]
    fn keep<L: List + ?Sized>(self, shape: &L, numel: usize, kept: &mut [isize]) {
        let strides = self.as_ref();
        for (kept, stride) in kept.iter_mut().zip(strides) {
            *kept = *stride as isize;
        }
        if !forward(strides) {
            let extents = shape.to_owned();
            for (axis, stride) in kept.iter_mut().enumerate() {
                *stride = settled(*stride, axis, extents.as_ref(), numel);
            }
        }
    }
}

/// Whether no stride is negative, as it nearly always is: element \[0, …, 0\] is the lowest then.
#[inline]
fn forward(strides: &[i64]) -> bool {
    strides.iter().fold(0, |all, stride| all | stride) >= 0
}

/// The offset of one past the highest element, for strides of which none is negative.
#[inline]
fn highest(extents: &[i64], strides: &[i64]) -> Option<isize> {
    let mut high = 0_isize;
    for (extent, stride) in extents.iter().zip(strides) {
        high = high.checked_add((*extent as isize - 1).checked_mul(*stride as isize)?)?;
    }
    high.checked_add(1)
}

/// The stride to keep for an axis. A negative one of an axis that is never stepped along says nothing, and consumers trip
/// over it. Other strides of such axes are kept, because some consumers read an order from them.
#[cold]
fn settled(stride: isize, axis: usize, extents: &[i64], numel: usize) -> isize {
    let idle = extents[axis] == 1 || numel == 0;
    if stride < 0 && idle { compact_stride(&extents[axis + 1..]) } else { stride }
}

/// The stride of an axis of a compact array, in front of these axes.
#[inline]
fn compact_stride(inner: &[i64]) -> isize {
    let mut product = 1_isize;
    for extent in inner {
        product = product.saturating_mul((*extent).max(1) as isize);
    }
    if product == isize::MAX { 0 } else { product }
}

#[cold]
pub(super) fn too_wide(axis: usize, claimed: i64) -> Error {
    let allowed = "a stride that fits the address space";
    Error::new(ErrorKind::Overflow, format_args!("strides[{axis}]"), claimed, allowed)
}
