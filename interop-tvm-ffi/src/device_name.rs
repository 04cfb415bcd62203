//! Names of devices, as TVM FFI and PyTorch write them.

use interop_core::{Device, DeviceType};

/// The names in `tvm/ffi/device.h`, with the numbers of `DLDeviceType`.
const NAMES: [(&str, i32); 14] = [
    ("cpu", 1),
    ("cuda", 2),
    ("opencl", 4),
    ("vulkan", 7),
    ("metal", 8),
    ("mps", 8),
    ("vpi", 9),
    ("rocm", 10),
    ("ext_dev", 12),
    ("webgpu", 15),
    ("wgpu", 15),
    ("hexagon", 16),
    ("maia", 17),
    ("trn", 18),
];

/// Returns the device with this name: a type, or a type with an ordinal, such as `cuda:1`.
pub(crate) fn device_of_name(text: &str) -> Option<Device> {
    let (device_type, ordinal) = text.split_once(':').unwrap_or((text, "0"));
    let (_, number) = NAMES.iter().find(|(name, _)| *name == device_type)?;
    // `parse` takes a sign.
    let is_decimal = ordinal.bytes().all(|digit| digit.is_ascii_digit());
    let device_id = ordinal.parse().ok().filter(|_| is_decimal)?;
    Some(Device { device_type: DeviceType(*number), device_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_type_and_an_ordinal() {
        assert_eq!(device_of_name("cpu"), Some(Device::CPU));
        assert_eq!(device_of_name("cuda"), Some(Device::cuda(0)));
        assert_eq!(device_of_name("cuda:12"), Some(Device::cuda(12)));
        assert_eq!(device_of_name("mps:0").map(|device| device.device_type), Some(DeviceType(8)));
        for wrong in
            ["", "CUDA", "cuda:", "cuda:+1", "cuda:-1", "cuda:1:2", "cuda:99999999999", "gpu", ":0", "cuda 0"]
        {
            assert_eq!(device_of_name(wrong), None, "{wrong}");
        }
    }
}
