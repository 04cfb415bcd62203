//! Registers the kernels with the simulated driver as host functions, so that the examples run without a GPU.

use interop_demo_kernels::{KERNELS_PTX, ORDER_PTX, entries, host};
use simulated_cuda::{DeviceMemory, find};

/// Registers all kernels with the simulated driver. Does nothing if the process uses a real driver.
///
/// Call this after the driver has been loaded.
///
/// # Panics
///
/// If a kernel has no host implementation. The tests of the kernels detect this first.
pub fn give_kernels() {
    let Ok(sim) = find() else { return };
    for name in [KERNELS_PTX, ORDER_PTX].into_iter().flat_map(entries) {
        let kernel = host::find::<DeviceMemory>(name).expect("a kernel that the host has, too");
        sim.register_kernel(name, kernel.sizes, kernel.run);
    }
}
