//! The kernels of `examples/hello-cuda`, for its tests on the simulated driver. Python loads this library.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "Python finds the function by its name")]

use hello_cuda_kernels::{add_elements, double_elements, doubled_elements, normalized_rows};
use simulated_cuda::sim;

/// Registers the kernels with the simulated driver of the process.
#[unsafe(no_mangle)]
pub extern "C" fn register_kernels() {
    let sim = sim();
    sim.register::<add_elements>();
    sim.register::<double_elements>();
    sim.register::<doubled_elements>();
    sim.register::<normalized_rows<f32>>();
}
