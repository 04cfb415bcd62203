//! The one walk over the axes in which shape and strides are checked and defaults chosen.

use super::{Layout, Order};
use crate::dims::{Dims, MAX_NDIM};
use crate::error::{Error, ErrorKind, Result};

/// An extent or a stride as it is claimed.
pub(crate) trait Claimed: Copy + core::fmt::Display {
    fn extent(self) -> Option<usize>;
    fn stride(self) -> Option<isize>;
    /// The number; negative where it does not fit.
    fn signed(self) -> isize;
}

macro_rules! claimed {
    ($($int:ty)*) => {
        $(
            impl Claimed for $int {
                #[inline]
                fn extent(self) -> Option<usize> {
                    usize::try_from(self).ok()
                }

                #[inline]
                fn stride(self) -> Option<isize> {
                    isize::try_from(self).ok()
                }

                #[inline]
                fn signed(self) -> isize {
                    isize::try_from(self).unwrap_or(-1)
                }
            }
        )*
    };
}

claimed!(i64 usize isize);

/// How strides are claimed.
#[derive(Clone, Copy)]
pub(crate) enum Spacing<'a, S> {
    Compact(Order),
    Elements(&'a [S]),
    /// In bytes, for elements of so many bytes.
    Bytes(&'a [S], usize),
}

/// What the walk has seen so far. Nothing branches on an overflow until all axes were seen: an array without elements
/// may overflow as it likes.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "flags of one pass, read together at its end")]
struct Walk {
    /// The stride that a compact array has on the next axis.
    running: isize,
    low: isize,
    high: isize,
    /// Some extent is 0.
    empty: bool,
    /// The elements cannot be counted, or some cannot be reached.
    uncountable: bool,
    unreachable: bool,
    /// Some number cannot be an extent or a stride at all.
    invalid: bool,
}

impl Walk {
    const START: Self = Self {
        running: 1,
        low: 0,
        high: 0,
        empty: false,
        uncountable: false,
        unreachable: false,
        invalid: false,
    };

    /// Takes in one axis: its extent, and its stride unless it is that of a compact array.
    #[inline]
    fn axis<E: Claimed>(&mut self, claimed: E, stride: Option<isize>, (to, at): (&mut usize, &mut isize)) {
        let extent = claimed.signed();
        let stride = match stride {
            // A negative number on an axis of one element says nothing, and consumers trip over it.
            Some(stride) if stride >= 0 || extent != 1 => stride,
            _ => self.running,
        };
        (*to, *at) = (claimed.extent().unwrap_or(0), stride);
        self.invalid |= extent < 0;
        self.empty |= extent == 0;
        let (running, beyond) = self.running.overflowing_mul(extent);
        self.running = running;
        self.uncountable |= beyond;
        let (reach, beyond) = extent.wrapping_sub(1).overflowing_mul(if extent == 1 { 0 } else { stride });
        let (low, under) = self.low.overflowing_add(reach.min(0));
        let (high, over) = self.high.overflowing_add(reach.max(0));
        (self.low, self.high) = (low, high);
        self.unreachable |= beyond | under | over;
    }
}

/// Checks a shape with strides, axis by axis.
#[inline]
pub(super) fn walk<E: Claimed, S: Claimed>(shape: &[E], spacing: Spacing<'_, S>) -> Result<Layout> {
    let ndim = shape.len();
    if ndim > MAX_NDIM {
        return Err(too_many_axes(ndim));
    }
    if let Spacing::Elements(strides) | Spacing::Bytes(strides, _) = spacing {
        if strides.len() != ndim {
            return Err(count_mismatch(strides.len(), ndim));
        }
    }
    let mut layout =
        Layout { shape: Dims::zeroed(ndim), strides: Dims::zeroed(ndim), numel: 0, low: 0, high: 0 };
    let mut seen = Walk::START;
    let axes = shape.iter().zip(layout.shape.iter_mut().zip(layout.strides.iter_mut()));
    match spacing {
        Spacing::Compact(Order::C) => axes.rev().for_each(|(extent, out)| seen.axis(*extent, None, out)),
        Spacing::Compact(Order::F) => axes.for_each(|(extent, out)| seen.axis(*extent, None, out)),
        Spacing::Elements(claims) => {
            for ((extent, out), stride) in axes.zip(claims).rev() {
                seen.invalid |= stride.stride().is_none();
                seen.axis(*extent, Some(stride.signed()), out);
            }
        }
        Spacing::Bytes(claims, item) => {
            for (axis, (extent, out)) in axes.enumerate().rev() {
                seen.axis(*extent, whole_elements(shape, claims, axis, item)?, out);
            }
        }
    }
    let (high, over) = seen.high.overflowing_add(1);
    if seen.invalid || seen.empty || seen.uncountable || seen.unreachable || over {
        return unusual(shape, spacing, layout, seen);
    }
    (layout.numel, layout.low, layout.high) = (seen.running.unsigned_abs(), seen.low, high);
    Ok(layout)
}

/// What is wrong with a layout, or the layout of an array without elements.
#[cold]
fn unusual<E: Claimed, S: Claimed>(
    shape: &[E],
    spacing: Spacing<'_, S>,
    mut layout: Layout,
    seen: Walk,
) -> Result<Layout> {
    if let Some(axis) = shape.iter().position(|extent| extent.extent().is_none()) {
        let place = format_args!("shape[{axis}]");
        return Err(Error::new(ErrorKind::Shape, place, shape[axis], "0 and up"));
    }
    if let Spacing::Elements(claims) | Spacing::Bytes(claims, _) = spacing {
        if let Some(axis) = claims.iter().position(|stride| stride.stride().is_none()) {
            return Err(bad_stride(axis, claims[axis]));
        }
    }
    if seen.empty {
        // Strides say nothing here; those that could be misread are replaced.
        let (order, all) =
            if let Spacing::Compact(order) = spacing { (order, true) } else { (Order::C, false) };
        let compact = layout.compact_strides(order);
        let strides = layout.strides.iter_mut().zip(&*compact);
        strides.filter(|(stride, _)| all || **stride < 0).for_each(|(stride, compact)| *stride = *compact);
        return Ok(layout);
    }
    if seen.uncountable || seen.invalid {
        let allowed = "extents whose product fits the address space";
        return Err(Error::new(ErrorKind::Overflow, "shape", format_args!("{:?}", layout.shape()), allowed));
    }
    Err(out_of_reach(layout.shape(), layout.strides()))
}

/// The stride in elements for a stride in bytes; `None` where one between elements does no harm.
fn whole_elements<E: Claimed, S: Claimed>(
    shape: &[E],
    claims: &[S],
    axis: usize,
    item: usize,
) -> Result<Option<isize>> {
    let stride = claims[axis].stride().ok_or_else(|| bad_stride(axis, claims[axis]))?;
    let item = isize::try_from(item.max(1)).unwrap_or(isize::MAX);
    let idle = shape[axis].extent() == Some(1) || shape.iter().any(|extent| extent.extent() == Some(0));
    match (stride % item, idle) {
        (0, _) => Ok(Some(stride / item)),
        (_, true) => Ok(None),
        (_, false) => {
            let place = format_args!("strides[{axis}]");
            let allowed = format_args!("a multiple of the item size, {item} bytes");
            Err(Error::new(ErrorKind::Strides, place, format_args!("{stride} bytes"), allowed))
        }
    }
}

#[cold]
fn too_many_axes(ndim: usize) -> Error {
    let allowed = format_args!("{MAX_NDIM} axes at most");
    Error::new(ErrorKind::Rank, "shape", format_args!("{ndim} axes"), allowed)
}

#[cold]
fn count_mismatch(found: usize, expected: usize) -> Error {
    let allowed = format_args!("{expected}, one for each axis");
    Error::new(ErrorKind::Strides, "strides", format_args!("{found} strides"), allowed)
}

#[cold]
fn bad_stride(axis: usize, claimed: impl Claimed) -> Error {
    let allowed = "a stride that fits the address space";
    Error::new(ErrorKind::Overflow, format_args!("strides[{axis}]"), claimed, allowed)
}

#[cold]
pub(super) fn out_of_reach(shape: &[usize], strides: &[isize]) -> Error {
    let found = format_args!("{strides:?} for shape {shape:?}");
    Error::new(ErrorKind::Overflow, "strides", found, "offsets that fit the address space")
}
