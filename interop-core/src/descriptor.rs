//! Claims about an array, and the one door through which they become facts.

use core::ops::Range;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::facts::Facts;
use crate::layout::Order;
use crate::record::Record;
use crate::stream::StreamHandle;

/// Who may write the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// Nobody.
    Never,
    /// The sole owner: an export that consumes the array is writable, one that shares it is not. This is for a `Vec`, to
    /// which Rust code may hold plain references.
    WhenOwned,
    /// All who have the array: for memory that Rust code never borrows as plain references, such as device memory.
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

/// Claims about an array: public fields, nothing checked.
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
    pub record: Option<&'a Record>,
    /// The extents.
    pub shape: &'a [i64],
    /// The strides.
    pub strides: Strides<'a>,
    /// Where the memory is; `None` where the protocol does not say and the driver was not asked. Only the ordinal of CUDA
    /// memory counts: any other is 0 in the facts.
    pub device: Option<Device>,
    /// Who may write.
    pub writes: Writes,
    /// Where work on the data is pending.
    pub stream: StreamHandle,
    /// The addresses of the whole memory, where they are known: elements outside them are refused.
    pub memory: Option<Range<usize>>,
}

impl<'a> Descriptor<'a> {
    /// Claims of a compact, writable `float32` array with nothing pending, to be changed by struct update syntax.
    #[must_use]
    #[inline]
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
    /// By [`ErrorKind`](crate::ErrorKind): `DType` and `Device` for what cannot be understood; `Rank` and `Shape` for more
    /// than [`MAX_NDIM`](crate::MAX_NDIM) axes and negative extents; `Strides` for a wrong number of strides, or byte strides
    /// between elements; `Overflow` when sizes or addresses do not fit; `Null` for an array with elements at address 0;
    /// `Bounds` when elements lie outside `memory`.
    pub fn validate(self) -> Result<Facts> {
        match self.usual_of_few_axes() {
            Some(facts) => Ok(facts),
            None => self.examine(),
        }
    }
}
