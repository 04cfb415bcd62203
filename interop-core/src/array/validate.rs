//! The checks that turn a [`RawDescriptor`] into an [`ArrayInfo`].
//!
//! Nearly all arrays take the fast path, [`RawDescriptor::validate_fast`]. If rank and element type are constants, it
//! compiles to a few comparisons without a loop. It returns no errors: all other arrays go to
//! [`RawDescriptor::validate_full`], which has every rule and its error.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values are checked before they are cast"
)]
#![expect(clippy::inline_always, reason = "checks of constants in the caller then disappear")]

use core::ops::Range;
use std::sync::Arc;

use crate::array::device::{Device, DeviceType};
use crate::array::dims::{Dims, INLINE, MAX_NDIM};
use crate::array::dtype::DType;
use crate::array::info::ArrayInfo;
use crate::array::layout::errors::too_many;
use crate::array::layout::order::{Order, fill_contiguous};
use crate::array::layout::{Layout, product};
use crate::array::raw_descriptor::{RawDescriptor, Strides};
use crate::array::stream::PendingWork;
use crate::error::{Error, ErrorKind, Result, text};

impl RawDescriptor<'_> {
    /// As [`validate`](Self::validate), inlined into the caller.
    #[inline(always)]
    pub(crate) fn validate_inlined(self) -> Result<ArrayInfo> {
        if let Some(info) = self.validate_fast() {
            return Ok(info);
        }
        self.validate_full()
    }

    /// The fast path, for at most five axes and elements of whole bytes. The strides are contiguous or not negative.
    /// Returns `None` for any other array, and for an invalid one.
    #[inline(always)]
    pub(crate) fn validate_fast(&self) -> Option<ArrayInfo> {
        let device = self.device.unwrap_or(Device::UNKNOWN);
        let supported = self.device.is_none() || device.is_supported();
        let whole_bytes = self.struct_type.is_none() && self.dtype.bits() % 8 == 0 && self.dtype.is_valid();
        let ndim = self.shape.len();
        if !supported || !whole_bytes || ndim > INLINE {
            return None;
        }
        // Missing axes get extent 1 and stride 0.
        let shape = padded(self.shape, 1);
        if shape.iter().any(|extent| usize::try_from(*extent).is_err()) {
            return None;
        }
        let numel = product(shape.iter().map(|extent| *extent as usize))?;
        let (strides, high) = match self.strides {
            Strides::Contiguous(order) => (compact(&shape, order), numel as isize),
            Strides::Elements(steps) if steps.len() == ndim && numel > 0 => {
                let steps = padded(steps, 0);
                (steps.map(|step| step as isize), reach(&shape, &steps)?)
            }
            _ => return None,
        };
        let (address, range) = if numel == 0 { self.empty_location() } else { self.ends(high)? };
        Some(ArrayInfo {
            address,
            range,
            dtype: self.dtype,
            padded: false,
            has_stale_padding: false,
            drops_in_order: false,
            struct_type: None,
            layout: Layout::inline(ndim, shape.map(|extent| extent as usize), strides, numel),
            device: device.normalized(),
            mutability: self.mutability,
            pending: self.pending(),
            uses: None,
        })
    }

    /// Nothing is pending on CPU memory.
    #[inline(always)]
    fn pending(&self) -> PendingWork {
        match self.stream {
            Some(stream) => PendingWork::on(stream),
            None if self.device.is_some_and(|device| device.device_type == DeviceType::CPU) => {
                PendingWork::NOTHING
            }
            None => PendingWork::UNKNOWN,
        }
    }

    /// The address 0 of an array without elements, and the start of its memory.
    #[inline(always)]
    fn empty_location(&self) -> (usize, Range<usize>) {
        let start = self.memory.as_ref().map_or(0, |memory| memory.start);
        (0, start..start)
    }

    /// The address of element \[0, …, 0\], and the range of `high` elements from there.
    #[inline(always)]
    fn ends(&self, high: isize) -> Option<(usize, Range<usize>)> {
        let start = self.address.checked_add_signed(isize::try_from(self.byte_offset).ok()?)?;
        // A count of bits overflows 32 bits at 256 MiB, so it is kept in 64 on every platform.
        let bits = (high as i64).checked_mul(self.dtype.packed_bits() as i64)?;
        let end = start.checked_add(usize::try_from(bits / 8).ok()?)?;
        let inside = self.memory.as_ref().is_none_or(|memory| start >= memory.start && end <= memory.end);
        (inside && self.address != 0).then_some((start, start..end))
    }

    /// Checks every rule; returns the error of the first broken one.
    #[cold]
    pub(crate) fn validate_full(self) -> Result<ArrayInfo> {
        self.dtype.check()?;
        if let Some(device) = self.device {
            device.check()?;
        }
        if let Some(struct_type) = self.struct_type {
            struct_type.check(self.dtype)?;
        }
        // Elements of whole bytes are never padded, whatever the flag says.
        let padded = self.padded && self.dtype.bits() % 8 != 0;
        let bits = self.dtype.item_bits(padded);
        if matches!(self.strides, Strides::Bytes(_)) && bits % 8 != 0 {
            let allowed = "strides in elements, for a type that is packed below the byte";
            return Err(Error::new(ErrorKind::Strides, "strides", "strides in bytes", allowed));
        }
        let layout = self.layout(bits / 8)?;
        let (address, range) =
            if layout.is_empty() { self.empty_location() } else { self.locate(&layout, bits as i64)? };
        Ok(ArrayInfo {
            address,
            range,
            dtype: self.dtype,
            padded,
            has_stale_padding: false,
            drops_in_order: false,
            struct_type: self.struct_type.cloned().map(Arc::new),
            layout,
            device: self.device.unwrap_or(Device::UNKNOWN).normalized(),
            mutability: self.mutability,
            pending: self.pending(),
            uses: None,
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
            Strides::Contiguous(order) => Layout::contiguous(&shape, order),
            Strides::Elements(strides) => Layout::strided(&shape, &narrow(strides)?),
            Strides::Bytes(strides) => Layout::strided_in_bytes(&shape, &narrow(strides)?, item),
        }
    }

    /// The address of element \[0, …, 0\], and the range from the lowest element to one past the highest. The array
    /// has elements, of `bits` bits each.
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
        // A view may begin at the lowest element; the highest must be reachable from there.
        let across = bytes(high - low, 7);
        let (Some(start), Some(end), Some(_)) = (at(bytes(low, 0)), at(bytes(high, 7)), across) else {
            return Err(outside_address_space(address, layout));
        };
        match &self.memory {
            Some(memory) if start < memory.start || end > memory.end => {
                Err(outside_memory(start..end, memory.clone(), self.dtype, layout))
            }
            _ => Ok((address, start..end)),
        }
    }
}

/// The list, filled up with `rest` for missing axes.
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
    fill_contiguous(&mut strides, |axis| shape[axis] as usize, order);
    strides
}

/// One past the highest element offset, or `None` if an offset is negative or overflows.
#[inline(always)]
fn reach(shape: &[i64; INLINE], strides: &[i64; INLINE]) -> Option<isize> {
    let mut last = 0_isize;
    for (extent, stride) in shape.iter().zip(strides) {
        let stride = isize::try_from(*stride).ok().filter(|stride| *stride >= 0)?;
        last = last.checked_add((*extent as isize - 1).checked_mul(stride)?)?;
    }
    last.checked_add(1)
}

/// Converts strides to the address size.
fn narrow(strides: &[i64]) -> Result<Dims<isize>> {
    let mut narrow = Dims::zeroed(strides.len());
    for (axis, stride) in strides.iter().enumerate() {
        narrow[axis] = isize::try_from(*stride).map_err(|_| too_wide(axis, *stride))?;
    }
    Ok(narrow)
}

#[cold]
fn negative(axis: usize, claimed: i64) -> Error {
    Error::new(ErrorKind::Shape, format_args!("shape[{axis}]"), claimed, "0 or greater")
}

#[cold]
fn no_first_element(address: usize, byte_offset: u64) -> Error {
    if address == 0 {
        let allowed = "an address that is not null, because the array has elements";
        return Error::new(ErrorKind::NullPointer, "data", "a null pointer", allowed);
    }
    let found = text!("{byte_offset} on top of address {address:#x}");
    Error::new(ErrorKind::Overflow, "byte_offset", found, "an offset that fits the address space")
}

#[cold]
fn outside_address_space(address: usize, layout: &Layout) -> Error {
    let (shape, strides) = (layout.shape(), layout.strides());
    let found = text!("shape {shape:?} and strides {strides:?} at {address:#x}");
    // A contiguous array is too large; for any other the strides are the cause.
    let compact = layout.is_contiguous(Order::C) || layout.is_contiguous(Order::F);
    let location = if compact { "shape" } else { "strides" };
    Error::new(ErrorKind::Overflow, location, found, "elements that fit the address space")
}

#[cold]
fn outside_memory(elements: Range<usize>, memory: Range<usize>, dtype: DType, layout: &Layout) -> Error {
    let at = |address: usize| address.wrapping_sub(memory.start) as isize;
    let (first, end, bytes) = (at(elements.start), at(elements.end), memory.len());
    let (shape, strides) = (layout.shape(), layout.strides());
    let found = text!("{shape:?} of {dtype} with strides {strides:?}: bytes {first} to {end}");
    let allowed = text!("bytes 0 to {bytes}, the {bytes} bytes of memory at {:#x}", memory.start);
    Error::new(ErrorKind::OutOfBounds, "shape", found, allowed)
}

#[cold]
fn too_wide(axis: usize, claimed: i64) -> Error {
    let allowed = "a stride that fits the address space";
    Error::new(ErrorKind::Overflow, format_args!("strides[{axis}]"), claimed, allowed)
}

impl RawDescriptor<'_> {
    /// Checks the description and returns an [`ArrayInfo`].
    ///
    /// # Errors
    ///
    /// - `DType`, `Device`: the element type or device is invalid or not supported.
    /// - `Rank`, `Shape`: more than [`MAX_NDIM`](crate::MAX_NDIM) axes, or a negative extent.
    /// - `Strides`: the number of strides is wrong, or a byte stride is not a multiple of the element size.
    /// - `Overflow`: sizes or addresses do not fit the address space.
    /// - `NullPointer`: an array with elements has the address 0.
    /// - `OutOfBounds`: elements lie outside `memory`.
    pub fn validate(self) -> Result<ArrayInfo> {
        self.validate_inlined()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the fast path accepts every valid array of this kind.
    fn is_simple(descriptor: &RawDescriptor<'_>) -> bool {
        let compact =
            matches!(descriptor.strides, Strides::Contiguous(_)) && descriptor.shape.len() <= INLINE;
        compact && descriptor.struct_type.is_none() && descriptor.dtype.bits() % 8 == 0
    }

    /// The bits of a gigabyte must be counted in 64 bits, also with 32-bit addresses, which Miri tests.
    #[test]
    fn a_gigabyte_is_not_too_much() {
        let forward =
            RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(0x1000, Device::CPU, &[1 << 30]) };
        let strides = Strides::Elements(&[-1]);
        let backward = RawDescriptor { strides, address: 0x5000_0000, ..forward.clone() };
        for descriptor in [forward, backward] {
            assert_eq!(descriptor.validate().map(|info| info.byte_range().len()), Ok(1 << 30));
        }
    }

    /// The fast path accepts only what `validate_full` accepts, with the same result; for simple arrays it accepts all
    /// of it.
    #[test]
    fn the_fast_path_agrees_with_full_validation() {
        let numbers = [-1, 0, 1, 3, 1 << 31, i64::MAX];
        let offsets = [0, 8, u64::MAX];
        let (mut accepted_fast, mut accepted_full) = (0, 0);
        let mut compare = |descriptor: &RawDescriptor<'_>| {
            let (fast, full) = (descriptor.validate_fast(), descriptor.clone().validate_full());
            assert!(fast.is_none() || fast == full.clone().ok(), "{descriptor:?}: {full:?}");
            assert!(!is_simple(descriptor) || fast.is_some() == full.is_ok(), "{descriptor:?}: {full:?}");
            accepted_fast += usize::from(fast.is_some());
            accepted_full += usize::from(full.is_ok());
        };
        for shape in numbers.iter().flat_map(|outer| numbers.map(|inner| [*outer, inner])) {
            let compact = [Strides::Contiguous(Order::C), Strides::Contiguous(Order::F)];
            let steps: Vec<_> =
                numbers.iter().flat_map(|outer| numbers.map(|inner| [*outer, inner])).collect();
            let given = steps.iter().flat_map(|steps| [Strides::Elements(steps), Strides::Bytes(steps)]);
            for strides in compact.into_iter().chain(given) {
                for (address, byte_offset) in [0, 0x1000, usize::MAX - 15].into_iter().zip(offsets) {
                    for dtype in [DType::F32, DType::F4_E2M1FN, DType::new(2, 7, 1)] {
                        let descriptor = RawDescriptor::new(address, Device::CPU, &shape);
                        let descriptor = RawDescriptor { byte_offset, dtype, strides, ..descriptor };
                        compare(&descriptor);
                        compare(&RawDescriptor { memory: Some(0x1000..0x1020), ..descriptor.clone() });
                        compare(&RawDescriptor { device: Some(Device::cuda(-1)), ..descriptor });
                    }
                }
            }
        }
        assert!(
            accepted_fast > 50 && accepted_full > accepted_fast,
            "{accepted_fast} accepted_fast, {accepted_full} right"
        );
    }
}
