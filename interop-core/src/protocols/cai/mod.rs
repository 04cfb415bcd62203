//! The CUDA Array Interface, versions 0 to 3, as plain data.
//!
//! Where the specification leaves it open: the key `strides` is always written, as `None` for a C-contiguous array. `None` and an
//! absent key read alike. If nothing is pending, the key `stream` is left out. `=` in a typestr is outside the grammar and
//! refused; so is `<V2`, which may be a bfloat16.
//!
//! [`CudaArrayInterface`] has one field for each key of the dict. An export fills it from an [`ArrayInfo`]; an import
//! checks it and returns an [`ArrayInfo`]. The Python layer converts it to a dict and back.
#![expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]

pub(crate) mod descr;

use crate::array::device::Device;
use crate::array::dtype::DType;
use crate::array::layout::order::Order;
use crate::array::mutability::Mutability;
use crate::array::stream_handle::StreamHandle;
use crate::array::validate::{RawDescriptor, Strides};
use crate::driver::stream::Stream;
use crate::error::{Error, ErrorKind, Result, text};
use crate::memory::import::{Import, Protocol};
use crate::order::array_info::ArrayInfo;
use crate::order::handover::locate_and_order;
use crate::order::release::owner::Owner;

pub use crate::protocols::cai::descr::{DescrEntry, DescrType};

/// The version of exports, and the latest version that is read by default.
pub const VERSION: i128 = 3;

/// The content of `__cuda_array_interface__`, one field for each key. Only the stream is checked.
///
/// ```
/// use interop_core::protocols::cai::CudaArrayInterface;
///
/// let interface = CudaArrayInterface {
///     shape: vec![2, 3],
///     typestr: "<f4".into(),
///     data: (0x7000, false),
///     version: 3,
///     ..CudaArrayInterface::default()
/// };
/// let info = interface.info()?;
/// assert_eq!(info.strides(), [3, 1]); // no strides: C order, counted with the item size of the source
///
/// let error = CudaArrayInterface { version: 4, ..interface }.info().unwrap_err();
/// assert_eq!(error.location(), "version");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaArrayInterface {
    /// The key `shape`.
    pub shape: Vec<i64>,
    /// The key `typestr`.
    pub typestr: String,
    /// The key `data`: the address of the first element, and whether the array is read-only.
    pub data: (usize, bool),
    /// The key `version`. Of a version after 3, [`info`](Self::info) reads what it knows if you set 3 here. For a consumer that
    /// refuses version 3, wait for `stream`, set it to `NothingPending`, and set 2.
    pub version: i128,
    /// The key `strides`, in bytes. `None` stands for `None` and for a missing key.
    pub strides: Option<Vec<i64>>,
    /// The key `stream`, decoded by [`StreamHandle::from_cai`]. If nothing is pending, exports omit the key, because
    /// some consumers crashed on `None` (NVIDIA/DALI#5423).
    pub stream: StreamHandle,
    /// The key `descr`, or `None` for a missing key.
    pub descr: Option<Vec<DescrEntry>>,
    /// Whether the key `mask` has a value other than `None`.
    pub mask: bool,
}

/// The fields of the interface that need a conversion. An array that the interface cannot express has none.
pub(crate) struct CaiFields {
    pub(crate) typestr: String,
    /// In bytes, or `None` for a C-contiguous array.
    pub(crate) strides: Option<Vec<isize>>,
    pub(crate) descr: Option<Vec<DescrEntry>>,
}

impl CaiFields {
    /// # Errors
    ///
    /// As `CudaArrayInterface::try_from`.
    pub(crate) fn from_info(info: &ArrayInfo) -> Result<Self> {
        if !info.device().device_type.is_cuda_accessible() {
            let allowed = "memory that CUDA can reach; use DLPack for host memory";
            return Err(Error::new(ErrorKind::Device, "device", info.device(), allowed));
        }
        let typestr = info.dtype().typestr().ok_or_else(|| {
            let allowed = "a type with a typestr in the CUDA Array Interface; use DLPack for other types";
            Error::new(ErrorKind::DType, "typestr", info.dtype(), allowed)
        })?;
        let strides = if info.layout().is_contiguous(Order::C) { None } else { info.byte_strides() };
        let size = info.dtype().packed_bits() / 8;
        let descr = info.struct_type().map(|struct_type| descr::write(struct_type, size)).transpose()?;
        Ok(Self { typestr, strides, descr })
    }
}

/// The interface of an array of no axes at address 0, without a stream and a typestr, for struct update syntax.
impl Default for CudaArrayInterface {
    fn default() -> Self {
        Self {
            shape: Vec::new(),
            typestr: String::new(),
            data: (0, false),
            version: 0,
            strides: None,
            stream: StreamHandle::NothingPending,
            descr: None,
            mask: false,
        }
    }
}

#[cold]
fn unknown_stream() -> Error {
    let allowed = "a known stream; `CudaArray::to_cai` names one that waits for all work on the array";
    Error::new(ErrorKind::Stream, "stream", "an unknown stream", allowed)
}

impl TryFrom<&ArrayInfo> for CudaArrayInterface {
    type Error = Error;

    /// The interface of the array that `info` describes, with its address unchanged.
    /// [`CudaArray::to_cai`](crate::derive::cuda_array::CudaArray::to_cai) returns the address that kernels use.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] for memory that CUDA cannot access; [`ErrorKind::DType`] for element types without a
    /// typestr; [`ErrorKind::Stream`] if it is unknown on which stream the memory was last written.
    fn try_from(info: &ArrayInfo) -> Result<Self> {
        let CaiFields { typestr, strides, descr } = CaiFields::from_info(info)?;
        Ok(Self {
            shape: info.shape().iter().map(|extent| *extent as i64).collect(),
            typestr,
            data: (info.address(), info.is_read_only()),
            version: VERSION,
            strides: strides.map(|strides| strides.iter().map(|stride| *stride as i64).collect()),
            stream: info.stream().ok_or_else(unknown_stream)?,
            descr,
            mask: false,
        })
    }
}

impl CudaArrayInterface {
    /// Checks the interface and returns the description of the array. Its device is unknown, because the interface does
    /// not name it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Version`] outside 0 to 3, [`ErrorKind::Mask`] for a masked array, [`ErrorKind::DType`] for
    /// `typestr` and `descr`; otherwise as [`RawDescriptor::validate`].
    pub fn info(&self) -> Result<ArrayInfo> {
        if !(0..=VERSION).contains(&self.version) {
            let allowed = text!("0 to {VERSION}");
            return Err(Error::new(ErrorKind::Version, "version", self.version, allowed));
        }
        if self.mask {
            let allowed = "None: masked arrays cannot be read without their mask";
            return Err(Error::new(ErrorKind::Mask, "mask", "a mask", allowed));
        }
        let dtype = DType::from_typestr(&self.typestr)?;
        let struct_type = match &self.descr {
            None => None,
            Some(descr) => descr::read(descr, dtype, &self.typestr)?,
        };
        RawDescriptor {
            address: self.data.0,
            byte_offset: 0,
            dtype,
            padded: false,
            struct_type: struct_type.as_ref(),
            shape: &self.shape,
            strides: self.strides.as_deref().map_or(Strides::Contiguous(Order::C), Strides::Bytes),
            device: None,
            mutability: if self.data.1 { Mutability::ReadOnly } else { Mutability::Writable },
            stream: Some(self.stream),
            memory: None,
        }
        .validate()
    }

    /// Checks the interface of an array in memory of this device.
    pub(crate) fn info_on_device(&self, device: Device) -> Result<ArrayInfo> {
        if !device.device_type.is_cuda_accessible() {
            let allowed = "memory that CUDA can reach: CUDA (2), CUDAHost (3) or CUDAManaged (13)";
            return Err(Error::new(ErrorKind::Device, "device", device, allowed));
        }
        device.check()?;
        let mut info = self.info()?;
        info.description.device = device.normalized();
        Ok(info)
    }
}

impl Import {
    /// Imports the array of an interface dict, in memory of `device`.
    ///
    /// The interface contains neither a device nor an owner, so the caller provides both. Pending work stays on the
    /// stream [`ArrayInfo::stream`](crate::ArrayInfo::stream). Otherwise as [`from_parts`](Self::from_parts).
    ///
    /// # Errors
    ///
    /// As [`CudaArrayInterface::info`]; [`ErrorKind::Device`](crate::error::ErrorKind::Device) for memory that CUDA
    /// cannot access.
    ///
    /// # Safety
    ///
    /// As [`from_parts`](Self::from_parts), for the address in the interface.
    pub unsafe fn from_cai_on_device(
        interface: &CudaArrayInterface,
        device: Device,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        // SAFETY: forwarded to the caller.
        let mut import = unsafe { Self::from_parts(interface.info_on_device(device)?, Owner::new(owner)) };
        import.protocol = Some(Protocol::CudaArrayInterface);
        Ok(import)
    }

    /// Imports the array of an interface dict for use on the stream `consumer`.
    ///
    /// The driver determines the device and the size of the allocation. `consumer` is made to wait for the stream of
    /// the interface. An interface of a version before 3 contains no stream: then it waits for all work of the memory's context.
    ///
    /// # Errors
    ///
    /// - As [`CudaArrayInterface::info`] and [`cuda::stream_wait`](crate::cuda::stream_wait).
    /// - [`ErrorKind::Driver`](crate::error::ErrorKind::Driver) without a driver.
    /// - [`ErrorKind::Device`](crate::error::ErrorKind::Device) for an address that does not belong to CUDA.
    /// - [`ErrorKind::OutOfBounds`](crate::error::ErrorKind::OutOfBounds) for elements outside the allocation.
    ///
    /// # Safety
    ///
    /// As [`from_parts`](Self::from_parts), for the address in the interface.
    pub unsafe fn from_cai_for_stream(
        interface: &CudaArrayInterface,
        consumer: StreamHandle,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        let mut info = interface.info()?;
        let stated = interface.version >= 3 || interface.stream != StreamHandle::NothingPending;
        let memory = locate_and_order(&mut info, stated, consumer)?;
        let protocol = Some(Protocol::CudaArrayInterface);
        let mut import = Self::new(info, Owner::new(owner).with_reach(memory.reach), protocol);
        let stream = Stream::in_context_of(consumer, import.context());
        import.put_on_ordered_stream(stream, memory.is_capturing);
        Ok(import)
    }
}
