//! The CUDA Array Interface, versions 0 to 3, as plain data.
//!
//! [`CudaArrayInterface`] has a field for each key of the dict. Export fills it from facts, import reads facts from it;
//! the Python layer turns it into a dict and back.

mod descr;

#[cfg(feature = "python")]
pub(crate) use descr::MAX_DEPTH;
pub use descr::{DescrEntry, DescrType};

use crate::descriptor::{Descriptor, Strides, Writes};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result, text};
use crate::facts::Facts;
use crate::layout::Order;
use crate::stream::StreamHandle;
use crate::typestr::Typestr;

/// The version that exports state, and the newest that is read without further ado.
pub const VERSION: i128 = 3;

/// What an object says in its `__cuda_array_interface__`: one field a key, nothing checked but the stream, which has to be one.
///
/// ```
/// use interop_core::cai::CudaArrayInterface;
///
/// let interface = CudaArrayInterface {
///     shape: vec![2, 3],
///     typestr: "<f4".into(),
///     data: (0x7000, false),
///     version: 3,
///     ..CudaArrayInterface::default()
/// };
/// let facts = interface.facts()?;
/// assert_eq!(facts.strides(), [3, 1]); // no strides: C order, counted with the item size of the source
///
/// let error = CudaArrayInterface { version: 4, ..interface }.facts().unwrap_err();
/// assert_eq!(error.place(), "version");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaArrayInterface {
    /// `shape`.
    pub shape: Vec<i64>,
    /// `typestr`.
    pub typestr: String,
    /// `data`: the address of the first element, and whether writing is forbidden.
    pub data: (usize, bool),
    /// `version`.
    pub version: i128,
    /// `strides`, in bytes; `None` for `None` and for an absent key.
    pub strides: Option<Vec<i64>>,
    /// `stream`, read by [`StreamHandle::from_cai`]. An export with nothing pending leaves the key out: consumers have crashed
    /// on a `None` (NVIDIA/DALI#5423).
    pub stream: StreamHandle,
    /// `descr`; `None` for an absent key.
    pub descr: Option<Vec<DescrEntry>>,
    /// Whether there is a `mask` other than `None`.
    pub mask: bool,
}

/// What the interface says of an array in words of its own. An array that it cannot express has none.
pub(crate) struct Spelled {
    pub(crate) typestr: Typestr,
    /// In bytes; `None` for a C-contiguous array.
    pub(crate) strides: Option<Vec<isize>>,
    pub(crate) descr: Option<Vec<DescrEntry>>,
}

impl Spelled {
    /// # Errors
    ///
    /// As [`CudaArrayInterface::of`].
    pub(crate) fn of(facts: &Facts) -> Result<Self> {
        if !facts.device().device_type.is_cuda_accessible() {
            let allowed = "memory that CUDA can reach; host memory goes through DLPack";
            return Err(Error::new(ErrorKind::Device, "device", facts.device(), allowed));
        }
        let typestr = facts.dtype().typestr().ok_or_else(|| {
            let allowed = "a type that the CUDA Array Interface has a typestr for; use DLPack";
            Error::new(ErrorKind::DType, "typestr", facts.dtype(), allowed)
        })?;
        let strides = if facts.layout().is_contiguous(Order::C) { None } else { facts.byte_strides() };
        let size = facts.dtype().packed_bits() / 8;
        let descr = facts.record().map(|record| descr::write(record, size)).transpose()?;
        Ok(Self { typestr, strides, descr })
    }
}

impl CudaArrayInterface {
    /// The interface of the array that `facts` describe, with the address that they have; see
    /// [`CudaArray::to_cai`](crate::CudaArray::to_cai) for the one that kernels use.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Device`] for memory that CUDA cannot reach; [`ErrorKind::DType`] for element types without typestr.
    pub fn of(facts: &Facts) -> Result<Self> {
        let Spelled { typestr, strides, descr } = Spelled::of(facts)?;
        Ok(Self {
            shape: facts.shape().iter().map(|extent| *extent as i64).collect(),
            typestr: typestr.as_str().into(),
            data: (facts.address(), facts.is_readonly()),
            version: VERSION,
            strides: strides.map(|strides| strides.iter().map(|stride| *stride as i64).collect()),
            stream: facts.stream(),
            descr,
            mask: false,
        })
    }

    /// The same interface in version 2, for consumers that refuse 3: without a stream, so whoever hands it out has
    /// synchronized with it.
    #[must_use]
    pub fn legacy(self) -> Self {
        Self { version: 2, stream: StreamHandle::NothingPending, ..self }
    }

    /// What the interface says, checked. The device is not known: the interface does not name it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Version`] outside 0 to 3, [`ErrorKind::Mask`] for a masked array, [`ErrorKind::DType`] for typestr and descr; otherwise as [`Descriptor::validate`].
    pub fn facts(&self) -> Result<Facts> {
        self.facts_up_to(VERSION)
    }

    /// As [`facts`](Self::facts), for versions up to `newest`: a later version is read as if it were version 3.
    ///
    /// # Errors
    ///
    /// As [`facts`](Self::facts).
    pub fn facts_up_to(&self, newest: i128) -> Result<Facts> {
        if !(0..=newest).contains(&self.version) {
            let allowed = text!("0 to {newest}");
            return Err(Error::new(ErrorKind::Version, "version", self.version, allowed));
        }
        if self.mask {
            let allowed = "None: masked arrays cannot be read without their mask";
            return Err(Error::new(ErrorKind::Mask, "mask", "a mask", allowed));
        }
        let dtype = DType::from_typestr(&self.typestr)?;
        let record = match &self.descr {
            None => None,
            Some(descr) => descr::read(descr, dtype, &self.typestr)?,
        };
        Descriptor {
            address: self.data.0,
            byte_offset: 0,
            dtype,
            padded: false,
            record: record.as_ref(),
            shape: &self.shape,
            strides: self.strides.as_deref().map_or(Strides::Compact(Order::C), Strides::Bytes),
            device: None,
            writes: if self.data.1 { Writes::Never } else { Writes::Always },
            stream: self.stream,
            memory: None,
        }
        .validate()
    }

    /// The facts of the interface for an array on this device.
    pub(crate) fn facts_on(&self, device: Device) -> Result<Facts> {
        if !device.device_type.is_cuda_accessible() {
            let allowed = "memory that CUDA can reach: CUDA (2), CUDAHost (3) or CUDAManaged (13)";
            return Err(Error::new(ErrorKind::Device, "device", device, allowed));
        }
        device.check()?;
        Ok(Facts { device: device.normalized(), ..self.facts()? })
    }
}
