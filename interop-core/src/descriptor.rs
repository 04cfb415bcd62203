//! Claims about an array, and the one door through which they become facts.

use core::ops::Range;

use crate::device::Device;
use crate::dims::{Dims, MAX_NDIM};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::facts::Facts;
use crate::layout::{Layout, Order};
use crate::record::Record;
use crate::stream::StreamHandle;

/// Who may write the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// Nobody.
    Never,
    /// The sole owner: an export that consumes the array is writable, one that shares it is not. So it is with a `Vec`,
    /// of which Rust code may hold plain references.
    WhenOwned,
    /// Whoever has the array: memory that Rust code never borrows as plain references, such as device memory.
    Always,
}

/// Strides as they are claimed.
#[derive(Clone, Copy, Debug)]
pub enum Strides<'a> {
    /// None given: compact, in this order. An absent key, a `None` and a null pointer all mean [`Order::C`].
    Compact(Order),
    /// In elements, as DLPack counts.
    Elements(&'a [i64]),
    /// In bytes, as the CUDA Array Interface counts.
    Bytes(&'a [i64]),
}

/// What somebody claims about an array: public fields, nothing checked.
///
/// A dict, a capsule and the fields of a derived struct are all read into this, and [`validate`](Self::validate) is the
/// only way from here to [`Facts`].
///
/// ```
/// use interop_core::{DType, Descriptor, Device, Order, Strides};
///
/// let claims = Descriptor { dtype: DType::F32, ..Descriptor::new(0x1000, Device::cuda(0), &[2, 3]) };
/// let facts = claims.validate()?;
/// assert_eq!(facts.strides(), [3, 1]);
/// assert_eq!(facts.byte_range(), 0x1000..0x1018);
///
/// // Every other element, from the last: the lowest address is below the first element's.
/// let reversed = Descriptor { strides: Strides::Bytes(&[-8]), ..Descriptor::new(0x1010, Device::cuda(0), &[3]) };
/// assert_eq!(reversed.validate()?.byte_range(), 0x1000..0x1014);
///
/// let error = Descriptor::new(0x1000, Device::CPU, &[2, -3]).validate().unwrap_err();
/// assert_eq!(error.to_string(), "`shape[1]`: found -3, allowed: 0 and up");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Descriptor<'a> {
    /// The address that `byte_offset` is added to.
    pub address: usize,
    /// The offset of element \[0, …, 0\] from `address`, in bytes.
    pub byte_offset: u64,
    /// The element type.
    pub dtype: DType,
    /// Whether lanes of less than a byte take whole bytes.
    pub padded: bool,
    /// The fields of structured elements; `dtype` is then opaque bytes of the record's size.
    pub record: Option<Record>,
    /// The extents.
    pub shape: &'a [i64],
    /// The strides.
    pub strides: Strides<'a>,
    /// Where the memory is; `None` where the protocol does not say and nobody was asked.
    pub device: Option<Device>,
    /// Who may write.
    pub writes: Writes,
    /// Where work on the data is pending.
    pub stream: StreamHandle,
    /// The addresses that are known to be there, if they are known.
    pub memory: Option<Range<usize>>,
}

impl<'a> Descriptor<'a> {
    /// Claims of a compact, writable `float32` array with nothing pending, to be changed by struct update syntax.
    #[must_use]
    pub const fn new(address: usize, device: Device, shape: &'a [i64]) -> Self {
        Self {
            address,
            byte_offset: 0,
            dtype: DType::F32,
            padded: false,
            record: None,
            shape,
            strides: Strides::Compact(Order::C),
            device: Some(device),
            writes: Writes::Always,
            stream: StreamHandle::NothingPending,
            memory: None,
        }
    }

    /// Turns the claims into facts, or says which is wrong.
    ///
    /// # Errors
    ///
    /// By [`ErrorKind`]: `DType` and `Device` for what cannot be understood; `Rank` and `Shape` for more than
    /// [`MAX_NDIM`] axes and negative extents; `Strides` for a wrong number or byte strides between elements; `Overflow`
    /// when sizes or addresses do not fit; `Null` for an array with elements at address 0; `Bounds` when elements lie
    /// outside `memory`.
    pub fn validate(self) -> Result<Facts> {
        self.dtype.check()?;
        self.device.map_or(Ok(()), Device::check)?;
        self.record.as_ref().map_or(Ok(()), |record| record.check(self.dtype))?;
        let layout = self.layout(self.dtype.item_bits(self.padded))?;
        let padded = self.padded && self.dtype.bits() % 8 != 0;
        let (address, range) = if layout.is_empty() {
            (0, 0..0)
        } else {
            let address = self.first_element()?;
            (address, self.reach(address, &layout, padded)?)
        };
        Ok(Facts {
            address,
            range,
            dtype: self.dtype,
            padded,
            record: self.record.map(Box::new),
            layout,
            device: self.device.unwrap_or(Device::UNKNOWN),
            writes: self.writes,
            stream: self.stream,
        })
    }

    /// The layout, for elements of this many bits.
    pub(crate) fn layout(&self, item_bits: usize) -> Result<Layout> {
        if self.shape.len() > MAX_NDIM {
            let found = format_args!("{} axes", self.shape.len());
            return Err(Error::new(ErrorKind::Rank, "shape", found, format_args!("{MAX_NDIM} axes at most")));
        }
        let mut shape = Dims::zeroed(self.shape.len());
        for (axis, (extent, claimed)) in shape.iter_mut().zip(self.shape).enumerate() {
            *extent = usize::try_from(*claimed).map_err(|_| {
                Error::new(ErrorKind::Shape, format_args!("shape[{axis}]"), claimed, "0 and up")
            })?;
        }
        match self.strides {
            Strides::Compact(order) => Layout::compact(&shape, order),
            Strides::Elements(strides) => Layout::strided(&shape, &narrow(strides)?),
            Strides::Bytes(strides) => {
                if item_bits % 8 != 0 {
                    let allowed = "strides in elements, for a type that is packed below the byte";
                    return Err(Error::new(ErrorKind::Strides, "strides", "strides in bytes", allowed));
                }
                Layout::strided_in_bytes(&shape, &narrow(strides)?, item_bits / 8)
            }
        }
    }

    /// The address of element \[0, …, 0\] of an array that has elements.
    fn first_element(&self) -> Result<usize> {
        if self.address == 0 {
            let allowed = "an address, because the array has elements";
            return Err(Error::new(ErrorKind::Null, "data", "a null pointer", allowed));
        }
        let address =
            isize::try_from(self.byte_offset).ok().and_then(|offset| self.address.checked_add_signed(offset));
        address.ok_or_else(|| {
            let found = format_args!("{} on top of address {:#x}", self.byte_offset, self.address);
            Error::new(ErrorKind::Overflow, "byte_offset", found, "an offset within the address space")
        })
    }

    /// The addresses that the elements take, from the lowest to one past the highest.
    fn reach(&self, address: usize, layout: &Layout, padded: bool) -> Result<Range<usize>> {
        let bits = self.dtype.item_bits(padded) as isize;
        let offsets = layout.offsets();
        let bytes = |elements: isize, round_up: isize| {
            Some(elements.checked_mul(bits)?.checked_add(round_up)?.div_euclid(8))
        };
        let start = bytes(offsets.start, 0).and_then(|low| address.checked_add_signed(low));
        let end = bytes(offsets.end, 7).and_then(|high| address.checked_add_signed(high));
        let Some((start, end)) = start.zip(end) else {
            let found =
                format_args!("shape {:?} and strides {:?} at {address:#x}", layout.shape(), layout.strides());
            return Err(Error::new(
                ErrorKind::Overflow,
                "strides",
                found,
                "elements within the address space",
            ));
        };
        match &self.memory {
            Some(memory) if start < memory.start || end > memory.end => {
                let found = format_args!("elements from {start:#x} to {end:#x}");
                let bytes = memory.len();
                let allowed =
                    format_args!("{:#x} to {:#x}, the {bytes} bytes of memory", memory.start, memory.end);
                Err(Error::new(ErrorKind::Bounds, "shape", found, allowed))
            }
            _ => Ok(start..end),
        }
    }
}

/// Strides as they are counted on this machine.
fn narrow(strides: &[i64]) -> Result<Dims<isize>> {
    let mut narrowed = Dims::zeroed(strides.len());
    for (axis, (stride, claimed)) in narrowed.iter_mut().zip(strides).enumerate() {
        *stride = isize::try_from(*claimed).map_err(|_| {
            let allowed = "a stride that fits the address space";
            Error::new(ErrorKind::Overflow, format_args!("strides[{axis}]"), claimed, allowed)
        })?;
    }
    Ok(narrowed)
}
