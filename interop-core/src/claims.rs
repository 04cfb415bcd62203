//! The one door between claims and facts.
//!
//! Nearly all arrays take the fast path, [`Descriptor::usual`]. Inlined where rank and element type are constants, it is a
//! few comparisons and no loop. It refuses nothing: what it does not recognise goes to [`Descriptor::examine`], which has
//! every rule and says which one was broken.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are cast after they were seen to fit"
)]
#![expect(clippy::inline_always, reason = "what is known where the claims are made is not checked there")]

use core::ops::Range;
use std::sync::Arc;

use crate::descriptor::{Descriptor, Strides};
use crate::device::Device;
use crate::dims::{Dims, INLINE, MAX_NDIM, for_rank};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;
use crate::layout::{Layout, Order, fill_compact, product, too_many};

impl Descriptor<'_> {
    /// As [`validate`](Self::validate), in the code of the caller.
    #[inline(always)]
    pub(crate) fn validate_here(self) -> Result<Facts> {
        if let Some(facts) = self.usual() {
            return Ok(facts);
        }
        // The slow path gets copies, so that the fast one can keep extents and strides in registers.
        let shape = Dims::from(self.shape);
        let steps = Dims::from(if let Strides::Elements(steps) = self.strides { steps } else { &[] });
        let strides =
            if let Strides::Elements(_) = self.strides { Strides::Elements(&steps) } else { self.strides };
        let plain = self.is_plain();
        let claims = Descriptor { shape: &shape, strides, ..self };
        if plain { Err(claims.refusal()) } else { claims.examine() }
    }

    /// Whether the fast path decides about this array: if [`usual`](Self::usual) does not accept it, it is wrong.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        let compact = matches!(self.strides, Strides::Compact(_)) && self.shape.len() <= INLINE;
        compact && self.record.is_none() && self.dtype.bits() % 8 == 0
    }

    /// The fast path: the facts of an array with a few axes and elements of whole bytes, which is compact or has elements
    /// none of which lies before element \[0, …, 0\]. `None` for any other array, and for one that is wrong.
    #[inline(always)]
    pub(crate) fn usual(&self) -> Option<Facts> {
        let device = self.device.unwrap_or(Device::UNKNOWN);
        let served = self.device.is_none() || device.is_served();
        let whole = self.record.is_none() && self.dtype.bits() % 8 == 0 && self.dtype.is_legal();
        let ndim = self.shape.len();
        if !served || !whole || ndim > INLINE {
            return None;
        }
        // Axes that are not there have extent 1 and take no step.
        let shape = padded(self.shape, 1);
        if shape.iter().any(|extent| usize::try_from(*extent).is_err()) {
            return None;
        }
        let numel = product(shape.iter().map(|extent| *extent as usize))?;
        let (strides, high) = match self.strides {
            Strides::Compact(order) => (compact(&shape, order), numel as isize),
            Strides::Elements(steps) if steps.len() == ndim && numel > 0 => {
                let steps = padded(steps, 0);
                (steps.map(|step| step as isize), reach(&shape, &steps)?)
            }
            _ => return None,
        };
        let (address, range) = if numel == 0 { self.nowhere() } else { self.ends(high)? };
        Some(Facts {
            address,
            range,
            dtype: self.dtype,
            padded: false,
            has_stale_padding: false,
            record: None,
            layout: Layout::inline(ndim, shape.map(|extent| extent as usize), strides, numel),
            device: device.normalized(),
            writes: self.writes,
            stream: self.stream,
        })
    }

    /// As [`usual`](Self::usual), for a rank that is not known before.
    pub(crate) fn usual_of_few_axes(&self) -> Option<Facts> {
        for_rank!(self.shape.len(), N => self.usual_of::<N>())
    }

    #[inline(always)]
    fn usual_of<const N: usize>(&self) -> Option<Facts> {
        let shape: [i64; N] = self.shape.try_into().ok()?;
        let mut steps = [0; N];
        let strides = match self.strides {
            Strides::Compact(order) => Strides::Compact(order),
            Strides::Elements(list) => {
                steps = list.try_into().ok()?;
                Strides::Elements(&steps)
            }
            Strides::Bytes(list) => {
                let (list, item): ([i64; N], _) =
                    (list.try_into().ok()?, self.dtype.packed_bits() as i64 / 8);
                for (step, bytes) in steps.iter_mut().zip(list) {
                    *step = bytes.checked_div(item).filter(|step| step * item == bytes)?;
                }
                Strides::Elements(&steps)
            }
        };
        Descriptor { shape: &shape, strides, ..self.clone() }.usual()
    }

    /// The address of no element, and the start of the memory behind it.
    #[inline(always)]
    fn nowhere(&self) -> (usize, Range<usize>) {
        let start = self.memory.as_ref().map_or(0, |memory| memory.start);
        (0, start..start)
    }

    /// The address of element \[0, …, 0\], and the range of `high` elements from there.
    #[inline(always)]
    fn ends(&self, high: isize) -> Option<(usize, Range<usize>)> {
        let start = self.address.checked_add_signed(isize::try_from(self.byte_offset).ok()?)?;
        // In 64 bits on every platform: a count of bits overflows 32 at 256 MiB.
        let bits = (high as i64).checked_mul(self.dtype.packed_bits() as i64)?;
        let end = start.checked_add(usize::try_from(bits / 8).ok()?)?;
        let inside = self.memory.as_ref().is_none_or(|memory| start >= memory.start && end <= memory.end);
        (inside && self.address != 0).then_some((start, start..end))
    }

    /// What is wrong with [plain](Self::is_plain) claims that the fast path did not accept.
    #[cold]
    fn refusal(self) -> Error {
        match self.examine() {
            Err(error) => error,
            Ok(_) => unreachable!("plain claims that are right are usual"),
        }
    }

    /// Turns any claims into facts, or says which is wrong.
    #[cold]
    pub(crate) fn examine(self) -> Result<Facts> {
        self.dtype.check()?;
        if let Some(device) = self.device {
            device.check()?;
        }
        if let Some(record) = self.record {
            record.check(self.dtype)?;
        }
        // Elements of whole bytes have no padding, whatever is claimed.
        let padded = self.padded && self.dtype.bits() % 8 != 0;
        let bits = self.dtype.item_bits(padded);
        if matches!(self.strides, Strides::Bytes(_)) && bits % 8 != 0 {
            let allowed = "strides in elements, for a type that is packed below the byte";
            return Err(Error::new(ErrorKind::Strides, "strides", "strides in bytes", allowed));
        }
        let layout = self.layout(bits / 8)?;
        let (address, range) =
            if layout.is_empty() { self.nowhere() } else { self.locate(&layout, bits as i64)? };
        Ok(Facts {
            address,
            range,
            dtype: self.dtype,
            padded,
            has_stale_padding: false,
            record: self.record.cloned().map(Arc::new),
            layout,
            device: self.device.unwrap_or(Device::UNKNOWN).normalized(),
            writes: self.writes,
            stream: self.stream,
        })
    }

    /// The layout, for elements of this many bytes.
    pub(crate) fn layout(&self, item: usize) -> Result<Layout> {
        let ndim = self.shape.len();
        if ndim > MAX_NDIM {
            return Err(too_many(ndim));
        }
        let mut shape = Dims::zeroed(ndim);
        for (axis, extent) in self.shape.iter().enumerate() {
            shape[axis] = usize::try_from(*extent).map_err(|_| negative(axis, *extent))?;
        }
        match self.strides {
            Strides::Compact(order) => Layout::compact(&shape, order),
            Strides::Elements(strides) => Layout::strided(&shape, &narrow(strides)?),
            Strides::Bytes(strides) => Layout::strided_in_bytes(&shape, &narrow(strides)?, item),
        }
    }

    /// The address of element \[0, …, 0\], and the addresses that the elements take, from the lowest to one past the
    /// highest; for an array that has elements, of so many bits.
    fn locate(&self, layout: &Layout, bits: i64) -> Result<(usize, Range<usize>)> {
        let offset = isize::try_from(self.byte_offset).ok();
        let address = offset.and_then(|offset| self.address.checked_add_signed(offset));
        let Some(address) = address.filter(|_| self.address != 0) else {
            return Err(no_first_element(self.address, self.byte_offset));
        };
        let bytes = |elements: isize, round_up: i64| {
            let bits = (elements as i64).checked_mul(bits)?.checked_add(round_up)?;
            isize::try_from(bits.div_euclid(8)).ok()
        };
        let at = |bytes: Option<isize>| address.checked_add_signed(bytes?);
        let Range { start: low, end: high } = layout.offsets();
        // A view may begin at the lowest element, and then reaches the highest from there.
        let across = bytes(high - low, 7);
        let (Some(start), Some(end), Some(_)) = (at(bytes(low, 0)), at(bytes(high, 7)), across) else {
            return Err(beyond(address, layout));
        };
        match &self.memory {
            Some(memory) if start < memory.start || end > memory.end => {
                Err(outside(start..end, memory.clone(), self.dtype, layout))
            }
            _ => Ok((address, start..end)),
        }
    }
}

/// The list, with `rest` in the place of axes that are not there.
#[inline(always)]
fn padded(list: &[i64], rest: i64) -> [i64; INLINE] {
    let mut padded = [rest; INLINE];
    for (axis, number) in padded.iter_mut().enumerate() {
        if axis < list.len() {
            *number = list[axis];
        }
    }
    padded
}

#[inline(always)]
fn compact(shape: &[i64; INLINE], order: Order) -> [isize; INLINE] {
    let mut strides = [0; INLINE];
    fill_compact(&mut strides, |axis| shape[axis] as usize, order);
    strides
}

/// The offset of one past the highest of some elements, where none lies before element \[0, …, 0\].
#[inline(always)]
fn reach(shape: &[i64; INLINE], strides: &[i64; INLINE]) -> Option<isize> {
    let mut last = 0_isize;
    for (extent, stride) in shape.iter().zip(strides) {
        let stride = isize::try_from(*stride).ok().filter(|stride| *stride >= 0)?;
        last = last.checked_add((*extent as isize - 1).checked_mul(stride)?)?;
    }
    last.checked_add(1)
}

/// Strides that fit the address space.
fn narrow(strides: &[i64]) -> Result<Dims<isize>> {
    let mut narrow = Dims::zeroed(strides.len());
    for (axis, stride) in strides.iter().enumerate() {
        narrow[axis] = isize::try_from(*stride).map_err(|_| too_wide(axis, *stride))?;
    }
    Ok(narrow)
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
    let found = text!("{byte_offset} on top of address {address:#x}");
    Error::new(ErrorKind::Overflow, "byte_offset", found, "an offset within the address space")
}

#[cold]
fn beyond(address: usize, layout: &Layout) -> Error {
    let (shape, strides) = (layout.shape(), layout.strides());
    let found = text!("shape {shape:?} and strides {strides:?} at {address:#x}");
    // A compact array is too big; another one reaches too far.
    let compact = layout.is_contiguous(Order::C) || layout.is_contiguous(Order::F);
    let place = if compact { "shape" } else { "strides" };
    Error::new(ErrorKind::Overflow, place, found, "elements within the address space")
}

#[cold]
fn outside(elements: Range<usize>, memory: Range<usize>, dtype: DType, layout: &Layout) -> Error {
    let at = |address: usize| address.wrapping_sub(memory.start) as isize;
    let (first, end, bytes) = (at(elements.start), at(elements.end), memory.len());
    let (shape, strides) = (layout.shape(), layout.strides());
    let found = text!("{shape:?} of {dtype} with strides {strides:?}: bytes {first} to {end}");
    let allowed = text!("bytes 0 to {bytes}, the {bytes} bytes of memory from {:#x} on", memory.start);
    Error::new(ErrorKind::Bounds, "shape", found, allowed)
}

#[cold]
fn too_wide(axis: usize, claimed: i64) -> Error {
    let allowed = "a stride that fits the address space";
    Error::new(ErrorKind::Overflow, format_args!("strides[{axis}]"), claimed, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gigabyte fits every address space: its bits are counted in 64 bits, also where an address has 32. Miri tries it there.
    #[test]
    fn a_gigabyte_is_not_too_much() {
        let forward = Descriptor { dtype: DType::U8, ..Descriptor::new(0x1000, Device::CPU, &[1 << 30]) };
        let strides = Strides::Elements(&[-1]);
        let backward = Descriptor { strides, address: 0x5000_0000, ..forward.clone() };
        for claims in [forward, backward] {
            assert_eq!(claims.validate().map(|facts| facts.byte_range().len()), Ok(1 << 30));
        }
    }

    /// What is usual is right, and `examine` finds the same facts; what is right and plain is usual.
    #[test]
    fn the_usual_is_what_would_be_examined() {
        let numbers = [-1, 0, 1, 3, 1 << 31, i64::MAX];
        let offsets = [0, 8, u64::MAX];
        let (mut usual, mut examined) = (0, 0);
        let mut compare = |claims: &Descriptor<'_>| {
            let (quick, thorough) = (claims.usual(), claims.clone().examine());
            let by_rank = claims.usual_of_few_axes();
            for quick in [&quick, &by_rank] {
                assert!(quick.is_none() || *quick == thorough.clone().ok(), "{claims:?}: {thorough:?}");
            }
            assert!(quick.is_none() || by_rank.is_some(), "{claims:?} is usual");
            assert!(!claims.is_plain() || quick.is_some() == thorough.is_ok(), "{claims:?}: {thorough:?}");
            usual += usize::from(quick.is_some());
            examined += usize::from(thorough.is_ok());
        };
        for shape in numbers.iter().flat_map(|outer| numbers.map(|inner| [*outer, inner])) {
            let compact = [Strides::Compact(Order::C), Strides::Compact(Order::F)];
            let steps: Vec<_> =
                numbers.iter().flat_map(|outer| numbers.map(|inner| [*outer, inner])).collect();
            let given = steps.iter().flat_map(|steps| [Strides::Elements(steps), Strides::Bytes(steps)]);
            for strides in compact.into_iter().chain(given) {
                for (address, byte_offset) in [0, 0x1000, usize::MAX - 15].into_iter().zip(offsets) {
                    for dtype in [DType::F32, DType::F4_E2M1FN, DType::new(2, 7, 1)] {
                        let claims = Descriptor::new(address, Device::CPU, &shape);
                        let claims = Descriptor { byte_offset, dtype, strides, ..claims };
                        compare(&claims);
                        compare(&Descriptor { memory: Some(0x1000..0x1020), ..claims.clone() });
                        compare(&Descriptor { device: Some(Device::cuda(-1)), ..claims });
                    }
                }
            }
        }
        assert!(usual > 50 && examined > usual, "{usual} usual, {examined} right");
    }
}
