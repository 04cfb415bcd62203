//! The kernels of `hello-functions`, as the simulated driver runs them.
#![expect(unsafe_code, reason = "Python finds the function by its name")]

use hello_functions_kernels::{scale_elements, scaled_elements};
use simulated_cuda::sim;

/// Registers the kernels with the simulated driver of the process.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn register_kernels() {
    let sim = sim();
    sim.register::<scale_elements>();
    sim.register::<scaled_elements>();
}
