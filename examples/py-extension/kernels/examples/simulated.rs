//! A library that registers the kernels with the simulated driver, for tests from Python.
#![expect(unsafe_code, reason = "a function that Python finds by its name")]

use interop_demo_extension_kernels as kernels;

/// Registers the kernels.
#[unsafe(no_mangle)]
pub extern "C" fn register_kernels() {
    let sim = simulated_cuda::sim();
    sim.register::<kernels::scale_8>();
    sim.register::<kernels::scale_16>();
    sim.register::<kernels::scale_32>();
    sim.register::<kernels::scale_64>();
    sim.register::<kernels::sum_8>();
    sim.register::<kernels::sum_16>();
    sim.register::<kernels::sum_32>();
    sim.register::<kernels::sum_64>();
    sim.register::<kernels::fill>();
}
