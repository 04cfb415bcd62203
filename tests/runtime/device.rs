//! Device types and devices.

use interop_core::{Device, DeviceType};

/// R55, bugs 115, 117: the numbers and names of `dlpack.h` 1.3, and whether host or device may dereference an
/// address.
#[test]
fn device_types_are_those_of_the_header() {
    let rows = [
        (1, "CPU", true, false),
        (2, "CUDA", false, true),
        (3, "CUDAHost", true, true),
        (4, "OpenCL", false, false),
        (7, "Vulkan", false, false),
        (8, "Metal", false, false),
        (9, "VPI", false, false),
        (10, "ROCM", false, false),
        (11, "ROCMHost", false, false),
        (12, "ExtDev", false, false),
        (13, "CUDAManaged", true, true),
        (14, "OneAPI", false, false),
        (15, "WebGPU", false, false),
        (16, "Hexagon", false, false),
        (17, "MAIA", false, false),
        (18, "Trn", false, false),
    ];
    for (code, name, host, cuda) in rows {
        let device_type = DeviceType(code);
        assert_eq!(device_type.to_string(), format!("{name} ({code})"));
        assert_eq!(device_type.is_host_accessible(), host, "{name}");
        assert_eq!(device_type.is_cuda_accessible(), cuda, "{name}");
    }
}

/// R56, R57: a number that the header does not list is kept as a number.
#[test]
fn other_device_types_are_numbers() {
    for code in [0, 5, 6, 77, -1, i32::MIN, i32::MAX] {
        let device_type = DeviceType(code);
        assert_eq!(device_type.to_string(), format!("unknown ({code})"));
        assert!(!device_type.is_host_accessible() && !device_type.is_cuda_accessible());
    }
    for (code, name) in [(19, "TPU"), (20, "TPUHost"), (21, "unknown")] {
        assert_eq!(DeviceType(code).to_string(), format!("{name} ({code})"), "later than 1.3");
    }
}

/// The devices with a constant; the ordinal is shown if it has a meaning.
#[test]
fn devices_have_names() {
    let rows = [
        (Device::CPU, DeviceType::CPU, "CPU (1)"),
        (Device::CUDA_HOST, DeviceType::CUDA_HOST, "CUDAHost (3)"),
        (Device::CUDA_MANAGED, DeviceType::CUDA_MANAGED, "CUDAManaged (13)"),
        (Device::cuda(0), DeviceType::CUDA, "CUDA (2), ordinal 0"),
    ];
    for (device, device_type, name) in rows {
        assert_eq!(
            (device.device_type, device.device_id, device.to_string()),
            (device_type, 0, name.to_string())
        );
    }
    assert_eq!((Device::cuda(7).device_id, Device::cuda(7).to_string()), (7, "CUDA (2), ordinal 7".into()));
}
