//! DLPack device types as plain numbers, and whether the host and CUDA devices can access each.

use core::fmt;

use crate::error::{Cure, Error, ErrorKind, Result, text};

/// A device type with the numbering of `DLDeviceType` in `dlpack.h`.
///
/// It is a newtype and not an enum, because the number comes from foreign memory. A Rust enum with an unlisted number
/// is undefined behaviour.
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

/// Names as in `dlpack.h`, without the prefix `kDL`. 5 and 6 were never assigned; 19 and 20 came after 1.3.
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
    /// The device is not known, as for an interface dict that was read without a driver.
    pub const UNKNOWN: Self = Self(0);
    /// Ordinary host memory.
    pub const CPU: Self = Self(1);
    /// Memory of one CUDA device.
    pub const CUDA: Self = Self(2);
    /// Pinned host memory, which CUDA devices can access.
    pub const CUDA_HOST: Self = Self(3);
    /// Managed memory, which the driver migrates between host and CUDA devices.
    pub const CUDA_MANAGED: Self = Self(13);

    /// Whether host code can dereference addresses of this memory.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        matches!(self, Self::CPU | Self::CUDA_HOST | Self::CUDA_MANAGED)
    }

    /// Whether a CUDA kernel can dereference addresses of this memory.
    #[must_use]
    pub const fn is_cuda_accessible(self) -> bool {
        matches!(self, Self::CUDA | Self::CUDA_HOST | Self::CUDA_MANAGED)
    }

    /// The name in `dlpack.h` without the prefix `kDL`, or `None` for an unlisted number.
    fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self.0).map(|(_, name)| *name)
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().unwrap_or("unknown"), self.0)
    }
}

/// A device type and a device ordinal (`DLDevice`).
///
/// For [CUDA](DeviceType::CUDA) memory the ordinal is that of the CUDA runtime, after `CUDA_VISIBLE_DEVICES`. For host,
/// pinned and managed memory it is 0 (`dlpack.h`, comment at `device_id`).
///
/// There is no default device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Device {
    /// The type of memory.
    pub device_type: DeviceType,
    /// The device ordinal.
    pub device_id: i32,
}

impl Device {
    /// Host memory.
    pub const CPU: Self = Self { device_type: DeviceType::CPU, device_id: 0 };
    /// Pinned host memory.
    pub const CUDA_HOST: Self = Self { device_type: DeviceType::CUDA_HOST, device_id: 0 };
    /// Managed memory.
    pub const CUDA_MANAGED: Self = Self { device_type: DeviceType::CUDA_MANAGED, device_id: 0 };
    /// An unknown device.
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

    /// The device as it is exported and compared: the ordinal is 0 for all memory except that of a CUDA device.
    #[must_use]
    pub(crate) const fn normalized(self) -> Self {
        match self.device_type {
            DeviceType::CUDA => self,
            device_type => Self { device_type, device_id: 0 },
        }
    }

    /// Whether this crate supports memory of this device.
    #[inline]
    pub(crate) fn is_supported(self) -> bool {
        let on_device = self.device_type.0 == DeviceType::CUDA.0 && self.device_id >= 0;
        on_device || self.device_type.is_host_accessible()
    }

    /// Returns an error for memory that the host cannot access.
    pub(crate) fn check_for_host(self) -> Result<()> {
        if self.device_type.is_host_accessible() {
            return Ok(());
        }
        let allowed = "memory that the host can reach: CPU (1), CUDAHost (3) or CUDAManaged (13)";
        Err(Error::new(ErrorKind::Device, "device", self, allowed).with_python_hint(Cure::ToHost))
    }

    /// Returns an error for devices that are not [supported](Self::is_supported).
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_supported() { Ok(()) } else { Err(self.refusal()) }
    }

    #[cold]
    fn refusal(self) -> Error {
        if self.device_type == DeviceType::CUDA {
            return Error::new(ErrorKind::Device, "device_id", self.device_id, "0 or greater");
        }
        let allowed = "CPU (1), CUDA (2), CUDAHost (3) and CUDAManaged (13)";
        if self.device_type == DeviceType::UNKNOWN {
            // Only the driver can tell the device of a foreign CUDA pointer.
            let found = text!("{}, memory of an unknown device", self.device_type);
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
