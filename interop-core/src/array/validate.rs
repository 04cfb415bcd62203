//! The unchecked description of an array, and the checks that turn it into an [`ArrayInfo`].
//!
//! There is one set of rules. If rank and element type are constants in the caller, it compiles to a few comparisons without
//! a loop. Errors are made in functions of their own, so that they cost nothing where there are none.
#![expect(clippy::inline_always, reason = "checks of constants in the caller then disappear")]

use core::ops::Range;
use std::sync::Arc;

use crate::array::description::Description;
use crate::array::device::Device;
use crate::array::dims::Dims;
use crate::array::dtype::DType;
use crate::array::layout::order::Order;
use crate::array::layout::{Layout, StrideList, in_elements};
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::struct_type::StructType;
use crate::error::{Error, ErrorKind, Result, text};

/// Strides of an unchecked description.
#[derive(Clone, Copy, Debug)]
pub enum Strides<'a> {
    /// No strides were given; the array is contiguous in this order. A missing key, `None` and a null pointer mean
    /// [`Order::C`].
    Contiguous(Order),
    /// In elements, as in DLPack.
    Elements(&'a [i64]),
    /// In bytes, as in the CUDA Array Interface.
    Bytes(&'a [i64]),
}

/// An unchecked description of an array, with public fields.
///
/// Interface dicts, capsules and derived structs are all read into this type. [`validate`](Self::validate) is the only
/// way to turn it into an [`ArrayInfo`](crate::ArrayInfo).
///
/// ```
/// use interop_core::protocols::{RawDescriptor, Strides};
/// use interop_core::{DType, Device, Order};
///
/// let descriptor = RawDescriptor { dtype: DType::F32, ..RawDescriptor::new(0x1000, Device::cuda(0), &[2, 3]) };
/// let info = descriptor.validate()?;
/// assert_eq!(info.strides(), [3, 1]);
/// assert_eq!(info.byte_range(), 0x1000..0x1018);
///
/// // Every other element, from the last: the lowest address is below the first element's.
/// let reversed = RawDescriptor { strides: Strides::Bytes(&[-8]), ..RawDescriptor::new(0x1010, Device::cuda(0), &[3]) };
/// assert_eq!(reversed.validate()?.byte_range(), 0x1000..0x1014);
///
/// let error = RawDescriptor::new(0x1000, Device::CPU, &[2, -3]).validate().unwrap_err();
/// assert_eq!(error.to_string(), "`shape[1]`: found -3, allowed: 0 or greater");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RawDescriptor<'a> {
    /// The base address, to which `byte_offset` is added.
    pub address: usize,
    /// The offset of element \[0, …, 0\] from `address`, in bytes.
    pub byte_offset: u64,
    /// The element type.
    pub dtype: DType,
    /// Whether a lane of less than a byte takes whole bytes.
    pub padded: bool,
    /// The fields of struct elements. `dtype` must then be opaque bytes of the struct's size.
    pub struct_type: Option<&'a StructType>,
    /// The extents.
    pub shape: &'a [i64],
    /// The strides.
    pub strides: Strides<'a>,
    /// The device of the memory, or `None` if the protocol does not name it and the driver was not asked. `validate`
    /// sets the ordinal to 0 except for CUDA memory.
    pub device: Option<Device>,
    /// Who may write.
    pub mutability: Mutability,
    /// The stream with pending work on the data; `None` if it is unknown.
    pub stream: Option<StreamHandle>,
    /// The address range of the whole allocation, if known. `validate` rejects elements outside it.
    pub memory: Option<Range<usize>>,
}

impl<'a> RawDescriptor<'a> {
    /// Describes a contiguous, writable `float32` array. It is unknown which stream last wrote it. Change fields by struct update syntax.
    #[must_use]
    #[inline]
    pub const fn new(address: usize, device: Device, shape: &'a [i64]) -> Self {
        Self {
            address,
            byte_offset: 0,
            dtype: DType::F32,
            padded: false,
            struct_type: None,
            shape,
            strides: Strides::Contiguous(Order::C),
            device: Some(device),
            mutability: Mutability::Writable,
            stream: None,
            memory: None,
        }
    }
}

/// The lowest address of memory. No system maps the page below, so that the parts of a null array end a program that reads them.
const FIRST_ADDRESS: usize = 4096;

/// What the checks found: the number of elements, the address of the first one, and the range of all.
pub(crate) struct Checked {
    numel: usize,
    address: usize,
    range: Range<usize>,
}

impl RawDescriptor<'_> {
    #[inline(always)]
    pub(crate) fn description(&self, steps: StrideList<'_, i64>, found: Checked) -> Description {
        Description {
            unwatched_address: found.address,
            range: found.range,
            dtype: self.dtype,
            padded: self.is_padded(),
            has_stale_padding: false,
            struct_type: self.struct_type.cloned().map(Arc::new),
            layout: Layout::from_checked(self.shape, steps, found.numel),
            device: self.device.unwrap_or(Device::UNKNOWN).normalized(),
            mutability: self.mutability,
        }
    }

    /// Checks the numbers. Inlined into the caller.
    #[inline(always)]
    pub(crate) fn describe(self) -> Result<Description> {
        let Some(steps) = self.steps() else { return self.describe_in_bytes() };
        let found = self.check(steps)?;
        Ok(self.description(steps, found))
    }

    /// As [`describe`](Self::describe). Replaces a description in its place (see `ImportSlot`). On an error, it stays as it was.
    #[inline(always)]
    pub(crate) fn describe_into(self, to: &mut Description) -> Result<()> {
        let Some(steps) = self.steps() else {
            *to = self.describe_in_bytes()?;
            return Ok(());
        };
        let found = self.check(steps)?;
        // All fields by name, so that a new one cannot be left out.
        let Description {
            unwatched_address: address,
            range,
            dtype,
            padded,
            has_stale_padding,
            struct_type,
            layout,
            device,
            mutability,
        } = to;
        (*address, *range) = (found.address, found.range);
        (*dtype, *padded, *has_stale_padding) = (self.dtype, self.is_padded(), false);
        *struct_type = self.struct_type.cloned().map(Arc::new);
        layout.set(self.shape, steps, found.numel);
        *device = self.device.unwrap_or(Device::UNKNOWN).normalized();
        *mutability = self.mutability;
        Ok(())
    }

    /// The strides, unless they are in bytes.
    #[inline(always)]
    pub(crate) fn steps(&self) -> Option<StrideList<'_, i64>> {
        match self.strides {
            Strides::Contiguous(order) => Some(StrideList::Contiguous(order)),
            Strides::Elements(strides) => Some(StrideList::Elements(strides)),
            Strides::Bytes(_) => None,
        }
    }

    #[cold]
    pub(crate) fn describe_in_bytes(self) -> Result<Description> {
        let bits = self.check_type()?;
        let Strides::Bytes(strides) = self.strides else { return self.describe() };
        let elements = self.in_elements(strides, bits)?;
        let elements = Dims::from_fn(elements.len(), |axis| elements[axis] as i64);
        RawDescriptor { strides: Strides::Elements(&elements), ..self }.describe()
    }

    #[inline(always)]
    pub(crate) fn check(&self, steps: StrideList<'_, i64>) -> Result<Checked> {
        self.check_parts(steps).map_err(|error| self.explain(error))
    }

    #[inline(always)]
    fn check_parts(&self, steps: StrideList<'_, i64>) -> Result<Checked> {
        let bits = self.check_type()?;
        let (numel, offsets) = Layout::check(self.shape, steps)?;
        if numel == 0 {
            // The start of the memory, which has an owner.
            let start = self.memory.as_ref().map_or(0, |memory| memory.start);
            return Ok(Checked { numel, address: 0, range: start..start });
        }
        let (address, range) = self.locate(offsets, bits as i64)?;
        Ok(Checked { numel, address, range })
    }

    /// Checks the element type and the device. Returns the number of bits of an element.
    #[inline(always)]
    fn check_type(&self) -> Result<usize> {
        self.dtype.check()?;
        if let Some(device) = self.device {
            device.check()?;
        }
        if let Some(struct_type) = self.struct_type {
            struct_type.check(self.dtype)?;
        }
        Ok(self.dtype.item_bits(self.is_padded()))
    }

    /// Elements of whole bytes are never padded, whatever the flag says.
    #[inline(always)]
    fn is_padded(&self) -> bool {
        self.padded && self.dtype.bits % 8 != 0
    }

    fn in_elements(&self, strides: &[i64], bits: usize) -> Result<Dims<isize>> {
        if bits % 8 != 0 {
            let allowed = "strides in elements, for a type that is packed below the byte";
            return Err(Error::new(ErrorKind::Strides, "strides", "strides in bytes", allowed));
        }
        in_elements(self.shape, strides, bits / 8)
    }

    /// The layout, for elements of this many bits.
    #[cold]
    pub(crate) fn layout(&self, bits: usize) -> Result<Layout> {
        match self.strides {
            Strides::Contiguous(order) => {
                Layout::from_strides(self.shape, StrideList::<i64>::Contiguous(order))
            }
            Strides::Elements(strides) => Layout::from_strides(self.shape, StrideList::Elements(strides)),
            Strides::Bytes(strides) => {
                Layout::from_strides(self.shape, StrideList::Elements(&self.in_elements(strides, bits)?))
            }
        }
    }

    /// The address of element \[0, …, 0\], and the range from the lowest element to one past the highest. The array has
    /// elements, of `bits` bits each.
    #[inline(always)]
    fn locate(&self, offsets: Range<isize>, bits: i64) -> Result<(usize, Range<usize>)> {
        let offset = isize::try_from(self.byte_offset).ok();
        let address = offset.and_then(|offset| self.address.checked_add_signed(offset));
        let is_memory = |address: &usize| *address >= FIRST_ADDRESS || self.memory.is_some();
        let Some(address) = address.filter(|address| self.address != 0 && is_memory(address)) else {
            return Err(no_first_element(self.address, self.byte_offset));
        };
        // A count of bits overflows 32 bits at 256 MiB, so it is kept in 64 on every platform.
        let bytes = |elements: isize, round_up: i64| {
            let bits = (elements as i64).checked_mul(bits)?.checked_add(round_up)?;
            isize::try_from(bits.div_euclid(8)).ok()
        };
        let at = |bytes: Option<isize>| address.checked_add_signed(bytes?);
        let Range { start: low, end: high } = offsets;
        // A view may begin at the lowest element; the highest must be reachable from there.
        let across = bytes(high - low, 7);
        let (Some(start), Some(end), Some(_)) = (at(bytes(low, 0)), at(bytes(high, 7)), across) else {
            return Err(self.outside_address_space(address));
        };
        match &self.memory {
            Some(memory) if start < memory.start || end > memory.end => {
                Err(self.outside_memory(start..end, memory))
            }
            _ => Ok((address, start..end)),
        }
    }

    /// Adds whose fault a stride is that was divided as an unsigned number of bytes: that of -2 elements of 4 bytes is 2^62 - 2.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        let item = self.dtype.item_bits(self.is_padded()) as i64 / 8;
        let near = |bytes: i64| (-1 << 47..0).contains(&bytes);
        let was_negative = |stride: &i64| *stride > 0 && near(stride.wrapping_mul(item));
        match self.strides {
            Strides::Elements(strides) if item > 1 && strides.iter().any(was_negative) => {
                let hint = "CuPy writes negative strides into DLPack as unsigned numbers; pass `cupy.ascontiguousarray(x)`";
                error.with_rust_hint(hint).with_python_hint(hint)
            }
            _ => error,
        }
    }

    #[cold]
    fn outside_address_space(&self, address: usize) -> Error {
        let layout = self.layout(0).unwrap_or_else(|_| Layout::empty());
        let (shape, strides) = (layout.shape(), layout.strides());
        let found = text!("shape {shape:?} and strides {strides:?} at {address:#x}");
        // A contiguous array is too large; for any other the strides are the cause.
        let compact = layout.is_contiguous(Order::C) || layout.is_contiguous(Order::F);
        let location = if compact { "shape" } else { "strides" };
        Error::new(ErrorKind::Overflow, location, found, "elements that fit the address space")
    }

    #[cold]
    fn outside_memory(&self, elements: Range<usize>, memory: &Range<usize>) -> Error {
        let at = |address: usize| address.wrapping_sub(memory.start) as isize;
        let (first, end, bytes) = (at(elements.start), at(elements.end), memory.len());
        let layout = self.layout(0).unwrap_or_else(|_| Layout::empty());
        let (shape, dtype, strides) = (layout.shape(), self.dtype, layout.strides());
        let found = text!("{shape:?} of {dtype} with strides {strides:?}: bytes {first} to {end}");
        let allowed = text!("bytes 0 to {bytes}, the {bytes} bytes of memory at {:#x}", memory.start);
        Error::new(ErrorKind::OutOfBounds, "shape", found, allowed)
    }
}

#[cold]
fn no_first_element(address: usize, byte_offset: u64) -> Error {
    if address == 0 {
        let allowed = "an address that is not null, because the array has elements";
        return Error::new(ErrorKind::NullPointer, "data", "a null pointer", allowed);
    }
    let first = usize::try_from(byte_offset).ok().and_then(|offset| address.checked_add(offset));
    if let Some(first) = first.filter(|first| *first < FIRST_ADDRESS) {
        let found = text!("the address {first:#x}, an offset from null");
        return Error::new(ErrorKind::NullPointer, "data", found, "the address of memory");
    }
    let found = text!("{byte_offset} on top of address {address:#x}");
    Error::new(ErrorKind::Overflow, "byte_offset", found, "an offset that fits the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    /// Nothing of an earlier description is left.
    #[test]
    fn a_description_is_replaced_as_a_whole() {
        let shape = &[2, 3];
        let strided = RawDescriptor {
            strides: Strides::Elements(&[1, 2]),
            ..RawDescriptor::new(0x1000, Device::CPU, shape)
        };
        let earlier = Description { has_stale_padding: true, ..Description::empty() };
        for descriptor in [RawDescriptor::new(0x1000, Device::CPU, shape), strided] {
            let (mut info, expected) = (earlier.clone(), descriptor.clone().describe().unwrap());
            descriptor.describe_into(&mut info).unwrap();
            assert_eq!(format!("{info:?}"), format!("{expected:?}"));
        }
    }
}
