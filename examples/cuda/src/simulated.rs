//! The kernels for a simulated driver, which runs no PTX but functions of the host: so the examples run without a GPU.

use interop_demo_kernels::host;
use interop_sim_client::find;

/// Memory of the simulated devices.
struct Device;

impl host::Memory for Device {
    fn place(address: u64, bytes: usize, writes: bool) -> Option<*mut u8> {
        let sim = find().ok()?;
        if writes { sim.write(address, bytes) } else { sim.read(address, bytes).map(<*const u8>::cast_mut) }
    }
}

/// Gives the simulated driver the kernels; a real one needs nothing. Called when a driver is loaded.
///
/// # Panics
///
/// When the examples have no kernel of one of these names.
pub fn give_kernels() {
    let Ok(sim) = find() else { return };
    for name in ["vector_add", "scale_f32_1", "blur_f32", "fill_f32_1", "spin", "produce", "consume"] {
        let kernel = host::find::<Device>(name).expect("a kernel of the examples");
        sim.register_kernel(name, &kernel.sizes, kernel.run);
    }
}
