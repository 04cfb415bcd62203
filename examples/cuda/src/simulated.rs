//! Registers the kernels with the simulated driver as host functions, so that the examples run without a GPU.

use interop_demo_kernels::{MODULES, Module, host};
use interop_sim_client::find;

/// Memory of the simulated devices.
struct Device;

impl host::MemoryRegion for Device {
    fn place(address: u64, bytes: usize, mutability: bool) -> Option<*mut u8> {
        let sim = find().ok()?;
        if mutability {
            sim.write(address, bytes)
        } else {
            sim.read(address, bytes).map(<*const u8>::cast_mut)
        }
    }
}

/// Registers all kernels with the simulated driver. Does nothing if the process uses a real driver.
///
/// Call this after the driver has been loaded.
///
/// # Panics
///
/// If a kernel has no host implementation. The tests of the kernels detect this first.
pub fn give_kernels() {
    let Ok(sim) = find() else { return };
    for name in MODULES.iter().flat_map(Module::kernels) {
        let kernel = host::find::<Device>(name).expect("a kernel with a reference");
        sim.register_kernel(name, &kernel.sizes, kernel.run);
    }
}
