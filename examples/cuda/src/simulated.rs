//! The kernels for a simulated driver, which runs no PTX but functions of the host: so the examples run without a GPU.

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

/// Gives the simulated driver all kernels; a real one needs nothing. Called when a driver is loaded.
///
/// # Panics
///
/// When a kernel has no reference on the host, which a test of the kernels sees first.
pub fn give_kernels() {
    let Ok(sim) = find() else { return };
    for name in MODULES.iter().flat_map(Module::kernels) {
        let kernel = host::find::<Device>(name).expect("a kernel with a reference");
        sim.register_kernel(name, &kernel.sizes, kernel.run);
    }
}
