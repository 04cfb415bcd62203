//! Claims about an array, and the one door through which they become facts.

use core::ops::Range;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream::StreamHandle;
use crate::array::struct_type::StructType;

/// Strides as they are claimed.
#[derive(Clone, Copy, Debug)]
pub enum Strides<'a> {
    /// None given: compact, in this order. An absent key, a `None` and a null pointer all mean [`Order::C`].
    Contiguous(Order),
    /// In elements, as DLPack counts.
    Elements(&'a [i64]),
    /// In bytes, as the CUDA Array Interface counts.
    Bytes(&'a [i64]),
}

/// Claims about an array: public fields, nothing checked.
///
/// A dict, a capsule and the fields of a derived struct are all read into this, and [`validate`](Self::validate) is the
/// only way from here to [`ArrayInfo`](crate::ArrayInfo).
///
/// ```
/// use interop_core::{DType, RawDescriptor, Device, Order, Strides};
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
/// assert_eq!(error.to_string(), "`shape[1]`: found -3, allowed: 0 and up");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RawDescriptor<'a> {
    /// The address that `byte_offset` is added to.
    pub address: usize,
    /// The offset of element \[0, …, 0\] from `address`, in bytes.
    pub byte_offset: u64,
    /// The element type.
    pub dtype: DType,
    /// Whether lanes of less than a byte take whole bytes.
    pub padded: bool,
    /// The fields of structured elements; `dtype` is then opaque bytes of the record's size.
    pub struct_type: Option<&'a StructType>,
    /// The extents.
    pub shape: &'a [i64],
    /// The strides.
    pub strides: Strides<'a>,
    /// Where the memory is; `None` where the protocol does not say and the driver was not asked. Only the ordinal of CUDA
    /// memory counts: any other is 0 in the facts.
    pub device: Option<Device>,
    /// Who may write.
    pub mutability: Mutability,
    /// Where work on the data is pending.
    pub stream: StreamHandle,
    /// The addresses of the whole memory, where they are known: elements outside them are refused.
    pub memory: Option<Range<usize>>,
}

impl<'a> RawDescriptor<'a> {
    /// Claims of a compact, writable `float32` array with nothing pending, to be changed by struct update syntax.
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
            stream: StreamHandle::NothingPending,
            memory: None,
        }
    }
}
