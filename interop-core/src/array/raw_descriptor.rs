//! The unchecked description of an array.

use core::ops::Range;

use crate::array::dtype::DType;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::struct_type::StructType;
use crate::driver::device::Device;
use crate::driver::stream_handle::StreamHandle;

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
/// use interop_core::descriptor::{RawDescriptor, Strides};
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
