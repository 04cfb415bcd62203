//! The one door between claims and facts.
//!
//! It is generic over the list of extents, `[i64; N]` or `[i64]`, and over strides or none: with the rank in the type, no
//! loop and no heap list is left in the code for it.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are cast after they were seen to fit, in `numel` and in `Steps::offsets`"
)]

mod steps;

use core::ops::Range;
use std::sync::Arc;

pub(crate) use self::steps::List;
use self::steps::{Steps, too_wide};
use crate::descriptor::Writes;
use crate::device::Device;
use crate::dims::{Dims, MAX_NDIM};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::facts::Facts;
use crate::layout::{Layout, Order, product, too_large, too_many};
use crate::record::Record;
use crate::stream::StreamHandle;

/// As [`Descriptor`](crate::Descriptor), without strides in bytes.
pub(crate) struct Claims<'a, L: ?Sized, S> {
    pub(crate) address: usize,
    pub(crate) byte_offset: u64,
    pub(crate) dtype: DType,
    pub(crate) padded: bool,
    pub(crate) record: Option<&'a Record>,
    pub(crate) shape: &'a L,
    pub(crate) strides: S,
    pub(crate) device: Option<Device>,
    pub(crate) writes: Writes,
    pub(crate) stream: StreamHandle,
    pub(crate) memory: Option<Range<usize>>,
}

/// Where the elements of an array are.
struct Place {
    numel: usize,
    /// Of element \[0, …, 0\].
    address: usize,
    range: Range<usize>,
}

impl<L: List + ?Sized, S: Steps> Claims<'_, L, S> {
    /// Turns the claims into facts, or says which is wrong.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the checks of a constant type vanish where it is known, and the claims with them"
    )]
    pub(crate) fn validate(self) -> Result<Facts> {
        let place = self.locate()?;
        Ok(self.facts(place))
    }

    /// As [`validate`](Self::validate), where the facts will stay; what is there is kept if a claim is wrong.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(crate) fn settle(self, facts: &mut Facts) -> Result<()> {
        let place = self.locate()?;
        *facts = self.facts(place);
        Ok(())
    }

    /// Checks everything.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn locate(&self) -> Result<Place> {
        // Where the type is a constant, this is nothing.
        self.dtype.check()?;
        if let Some(device) = self.device {
            device.check()?;
        }
        if let Some(record) = self.record {
            record.check(self.dtype)?;
        }
        let numel = numel(self.shape)?;
        let (low, high) = self.strides.offsets(self.shape, numel)?;
        if numel == 0 {
            return Ok(Place { numel, address: 0, range: 0..0 });
        }
        let address = self.first_element()?;
        Ok(Place { numel, address, range: self.reach(address, low, high)? })
    }

    /// The facts, of which nothing can be wrong any more.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn facts(self, place: Place) -> Facts {
        Facts {
            address: place.address,
            range: place.range,
            dtype: self.dtype,
            padded: self.is_padded(),
            record: self.record.cloned().map(Arc::new),
            layout: kept(self.shape, self.strides, place.numel),
            device: self.device.unwrap_or(Device::UNKNOWN),
            writes: self.writes,
            stream: self.stream,
        }
    }

    /// Whether elements of less than a byte take a byte each: other elements have no padding, whatever is claimed.
    #[inline]
    fn is_padded(&self) -> bool {
        self.padded && self.dtype.bits() % 8 != 0
    }

    /// The address of element \[0, …, 0\] of an array that has elements.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn first_element(&self) -> Result<usize> {
        let offset = isize::try_from(self.byte_offset).ok();
        match offset.and_then(|offset| self.address.checked_add_signed(offset)) {
            Some(address) if self.address != 0 => Ok(address),
            _ => Err(no_first_element(self.address, self.byte_offset)),
        }
    }

    /// The addresses that the elements take, from the lowest to one past the highest.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn reach(&self, address: usize, low: isize, high: isize) -> Result<Range<usize>> {
        let bits = self.dtype.item_bits(self.is_padded()) as isize;
        let bytes = |elements: isize, round_up: isize| {
            Some(elements.checked_mul(bits)?.checked_add(round_up)?.div_euclid(8))
        };
        let start = if low == 0 {
            Some(address)
        } else {
            bytes(low, 0).and_then(|low| address.checked_add_signed(low))
        };
        let end = bytes(high, 7).and_then(|high| address.checked_add_signed(high));
        let (Some(start), Some(end)) = (start, end) else {
            // The array has elements, however many; the layout is for the message only.
            return Err(beyond(address, &kept(self.shape, self.strides, 1)));
        };
        match &self.memory {
            Some(memory) if start < memory.start || end > memory.end => {
                Err(outside(start..end, memory.clone()))
            }
            _ => Ok(start..end),
        }
    }
}

impl<'a, L: List + ?Sized, S> Claims<'a, L, S> {
    /// The same claims with these strides.
    #[inline]
    pub(crate) fn with<T>(self, strides: T) -> Claims<'a, L, T> {
        let Self {
            address, byte_offset, dtype, padded, record, shape, device, writes, stream, memory, ..
        } = self;
        Claims { address, byte_offset, dtype, padded, record, shape, strides, device, writes, stream, memory }
    }

    /// The same claims for one code that serves all ranks.
    #[inline]
    pub(crate) fn of_any_rank(self) -> Claims<'a, [i64], S> {
        let Self {
            address, byte_offset, dtype, padded, record, strides, device, writes, stream, memory, ..
        } = self;
        let shape = self.shape.as_ref();
        Claims { address, byte_offset, dtype, padded, record, shape, strides, device, writes, stream, memory }
    }
}

impl<S: Steps> Claims<'_, [i64], S> {
    /// As [`validate`](Self::validate), with the rank known to the compiler where it is a usual one.
    pub(crate) fn validate_ranked(self) -> Result<Facts> {
        match self.shape.len() {
            1 => self.of_rank::<1>(),
            2 => self.of_rank::<2>(),
            3 => self.of_rank::<3>(),
            4 => self.of_rank::<4>(),
            _ => self.validate(),
        }
    }

    fn of_rank<const N: usize>(self) -> Result<Facts> {
        let (Ok(shape), Some(strides)) = (self.shape.try_into(), self.strides.ranked()) else {
            return self.validate();
        };
        let Self { address, byte_offset, dtype, padded, record, device, writes, stream, memory, .. } = self;
        let claims: Claims<'_, [i64; N], S::Ranked<N>> = Claims {
            address,
            byte_offset,
            dtype,
            padded,
            record,
            shape,
            strides,
            device,
            writes,
            stream,
            memory,
        };
        claims.validate()
    }
}

/// The layout that extents and strides describe.
pub(crate) fn layout(shape: &[i64], strides: impl Steps) -> Result<Layout> {
    let numel = numel(shape)?;
    strides.offsets(shape, numel)?;
    Ok(kept(shape, strides, numel))
}

/// Strides in elements, for strides in bytes.
pub(crate) fn in_elements(shape: &[i64], strides: &[i64], item: usize) -> Result<Dims<i64>> {
    numel(shape)?;
    let mut narrow = Dims::zeroed(strides.len());
    for (axis, stride) in strides.iter().enumerate() {
        narrow[axis] = isize::try_from(*stride).map_err(|_| too_wide(axis, *stride))?;
    }
    let mut extents = Dims::zeroed(shape.len());
    for (extent, claimed) in extents.iter_mut().zip(shape) {
        *extent = *claimed as usize;
    }
    let layout = Layout::strided_in_bytes(&extents, &narrow, item)?;
    let mut elements = Dims::zeroed(strides.len());
    for (axis, stride) in layout.strides().iter().enumerate() {
        elements[axis] = *stride as i64;
    }
    Ok(elements)
}

/// The number of elements.
#[inline]
fn numel<L: List + ?Sized>(shape: &L) -> Result<usize> {
    let extents = shape.as_ref();
    if extents.len() > MAX_NDIM {
        return Err(too_many(extents.len()));
    }
    for (axis, extent) in extents.iter().enumerate() {
        if usize::try_from(*extent).is_err() {
            return Err(negative(axis, *extent));
        }
    }
    match product(extents.iter().map(|extent| *extent as usize)) {
        Some(numel) => Ok(numel),
        None => Err(too_large(&shape.to_owned())),
    }
}

/// Checked extents and strides.
#[inline]
fn kept<L: List + ?Sized>(shape: &L, strides: impl Steps, numel: usize) -> Layout {
    Layout::filled(shape.as_ref().len(), numel, |extents, steps| {
        for (kept, extent) in extents.iter_mut().zip(shape.as_ref()) {
            *kept = *extent as usize;
        }
        strides.keep(shape, numel, steps);
    })
}

#[cold]
fn negative(axis: usize, claimed: i64) -> Error {
    Error::new(ErrorKind::Shape, format_args!("shape[{axis}]"), claimed, "0 and up")
}

#[cold]
fn no_first_element(address: usize, byte_offset: u64) -> Error {
    if address == 0 {
        let allowed = "an address, because the array has elements";
        return Error::new(ErrorKind::Null, "data", "a null pointer", allowed);
    }
    let found = format_args!("{byte_offset} on top of address {address:#x}");
    Error::new(ErrorKind::Overflow, "byte_offset", found, "an offset within the address space")
}

#[cold]
fn beyond(address: usize, layout: &Layout) -> Error {
    let (shape, strides) = (layout.shape(), layout.strides());
    let found = format_args!("shape {shape:?} and strides {strides:?} at {address:#x}");
    // A compact array is too big; another one reaches too far.
    let compact = layout.is_contiguous(Order::C) || layout.is_contiguous(Order::F);
    let place = if compact { "shape" } else { "strides" };
    Error::new(ErrorKind::Overflow, place, found, "elements within the address space")
}

#[cold]
fn outside(elements: Range<usize>, memory: Range<usize>) -> Error {
    let found = format_args!("elements from {:#x} to {:#x}", elements.start, elements.end);
    let bytes = memory.len();
    let allowed = format_args!("{:#x} to {:#x}, the {bytes} bytes of memory", memory.start, memory.end);
    Error::new(ErrorKind::Bounds, "shape", found, allowed)
}
