//! Where memory is: DLPack's device types as plain numbers, and what each allows.

use core::fmt;

use crate::error::{Error, ErrorKind, Result, text};

/// A device type as `DLDeviceType` counts them (`dlpack.h`, `DLDevice`).
///
/// A newtype over the number and not an enum: the value comes from foreign memory, where a number that a Rust enum does
/// not list would be undefined behaviour.
///
/// ```
/// use interop_core::DeviceType;
///
/// assert_eq!(DeviceType::CUDA_HOST.to_string(), "CUDAHost (3)");
/// assert!(DeviceType::CUDA_HOST.is_host_accessible());
/// assert_eq!(DeviceType(77).to_string(), "unknown (77)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct DeviceType(pub i32);

/// Names in the spelling of `dlpack.h`, without the prefix `kDL`. 5 and 6 were never given out; 19 and 20 came after 1.3.
const NAMES: [(i32, &str); 18] = [
    (1, "CPU"),
    (2, "CUDA"),
    (3, "CUDAHost"),
    (4, "OpenCL"),
    (7, "Vulkan"),
    (8, "Metal"),
    (9, "VPI"),
    (10, "ROCM"),
    (11, "ROCMHost"),
    (12, "ExtDev"),
    (13, "CUDAManaged"),
    (14, "OneAPI"),
    (15, "WebGPU"),
    (16, "Hexagon"),
    (17, "MAIA"),
    (18, "Trn"),
    (19, "TPU"),
    (20, "TPUHost"),
];

impl DeviceType {
    /// No statement about the device: an interface dict that no driver was asked about.
    pub const UNKNOWN: Self = Self(0);
    /// Host memory of no special kind.
    pub const CPU: Self = Self(1);
    /// Memory of one CUDA device.
    pub const CUDA: Self = Self(2);
    /// Host memory that is pinned, and so accessible to CUDA devices.
    pub const CUDA_HOST: Self = Self(3);
    /// Memory that host and CUDA devices share, moved by the driver.
    pub const CUDA_MANAGED: Self = Self(13);

    /// Whether code on the host may follow an address of this memory.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        matches!(self, Self::CPU | Self::CUDA_HOST | Self::CUDA_MANAGED)
    }

    /// Whether a CUDA kernel may follow an address of this memory.
    #[must_use]
    pub const fn is_cuda_accessible(self) -> bool {
        matches!(self, Self::CUDA | Self::CUDA_HOST | Self::CUDA_MANAGED)
    }

    /// The name in `dlpack.h`, without the prefix `kDL`; `None` for a number that it does not list.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self.0).map(|(_, name)| *name)
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().unwrap_or("unknown"), self.0)
    }
}

/// A device type with the ordinal among its kind (`DLDevice`).
///
/// The ordinal of [CUDA](DeviceType::CUDA) memory is the CUDA runtime's, after `CUDA_VISIBLE_DEVICES`. It is 0 for host,
/// pinned and managed memory (`dlpack.h`, comment at `device_id`).
///
/// There is no default device: memory says where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Device {
    /// The kind of memory.
    pub device_type: DeviceType,
    /// The ordinal.
    pub device_id: i32,
}

impl Device {
    /// Host memory.
    pub const CPU: Self = Self { device_type: DeviceType::CPU, device_id: 0 };
    /// Pinned host memory.
    pub const CUDA_HOST: Self = Self { device_type: DeviceType::CUDA_HOST, device_id: 0 };
    /// Managed memory.
    pub const CUDA_MANAGED: Self = Self { device_type: DeviceType::CUDA_MANAGED, device_id: 0 };
    /// A device of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self { device_type: DeviceType::UNKNOWN, device_id: 0 };

    /// The memory of one CUDA device.
    ///
    /// ```
    /// use interop_core::Device;
    /// assert_eq!(Device::cuda(1).to_string(), "CUDA (2), ordinal 1");
    /// ```
    #[must_use]
    pub const fn cuda(ordinal: i32) -> Self {
        Self { device_type: DeviceType::CUDA, device_id: ordinal }
    }

    /// The device as it is exported and compared: the ordinal is dropped where it means nothing.
    #[must_use]
    pub(crate) const fn normalized(self) -> Self {
        match self.device_type {
            DeviceType::CUDA => self,
            device_type => Self { device_type, device_id: 0 },
        }
    }

    /// Whether this crate can serve the addresses of the device.
    #[inline]
    pub(crate) fn is_served(self) -> bool {
        let on_device = self.device_type.0 == DeviceType::CUDA.0 && self.device_id >= 0;
        on_device || self.device_type.is_host_accessible()
    }

    /// Refuses memory that the host cannot reach.
    pub(crate) fn check_for_host(self) -> Result<()> {
        if self.device_type.is_host_accessible() {
            return Ok(());
        }
        let allowed = "memory that the host can reach: CPU (1), CUDAHost (3) or CUDAManaged (13)";
        Err(Error::new(ErrorKind::Device, "device", self, allowed))
    }

    /// Refuses devices that are not [served](Self::is_served), by name and number.
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_served() { Ok(()) } else { Err(self.refusal()) }
    }

    #[cold]
    fn refusal(self) -> Error {
        if self.device_type == DeviceType::CUDA {
            return Error::new(ErrorKind::Device, "device_id", self.device_id, "0 and up");
        }
        let allowed = "CPU (1), CUDA (2), CUDAHost (3) and CUDAManaged (13)";
        if self.device_type == DeviceType::UNKNOWN {
            // Of a library's buffer only the driver can say where it is.
            let found = text!("{}, memory that nobody could place", self.device_type);
            return Error::new(ErrorKind::Device, "device_type", found, allowed);
        }
        Error::new(ErrorKind::Device, "device_type", self.device_type, allowed)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device_type.fmt(f)?;
        if self.device_type == DeviceType::CUDA { write!(f, ", ordinal {}", self.device_id) } else { Ok(()) }
    }
}
