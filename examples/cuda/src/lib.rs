//! Programs for a GPU, each of one file to read from top to bottom: `vector_add`, `pinned`, `blur`, `two_streams`, `bandwidth`.
//!
//! ```sh
//! cargo xtask sim                                                      # once: cust links libcuda
//! cargo run --release -p interop-cuda-examples --bin vector_add        # driver 535 or newer
//! LD_LIBRARY_PATH=$PWD/target/sim/lib64 cargo run --release -p interop-cuda-examples --bin vector_add   # without a GPU
//! ```
//!
//! The first line makes the simulated driver, which `cust` then links, unless you set `CUDA_LIBRARY_PATH`: `vector_add` and
//! `pinned` do not start without a `libcuda.so.1`. `cudarc` finds the driver at run time: without one, the other programs say so
//! and succeed. On the simulated driver, give `bandwidth` fewer elements: `-- 100000`.
//!
//! The examples are functions here. The programs in `src/bin` print their results, which the tests compare with
//! `examples/output.txt`.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "small numbers, of which all sums are exact"
)]
#![expect(unsafe_code, reason = "names the PTX of the kernels")]

use interop_core::KernelModule;
use interop_demo_kernels::KERNELS_PTX;

pub mod bandwidth;
pub mod blur;
pub mod pinned;
#[cfg(target_os = "linux")]
pub mod simulated;
pub mod two_streams;
pub mod vector_add;

/// The kernels of the examples. A launch scope loads them.
// SAFETY: the PTX is compiled from the functions of `interop_demo_kernels::kernels`.
pub static KERNELS: KernelModule = unsafe { KernelModule::new(KERNELS_PTX) };

/// The text that an example prints, or the reason why it failed.
pub type Outcome = Result<String, Box<dyn std::error::Error>>;

/// The `main` function of every example. Prints the result, or says that there is no CUDA driver.
///
/// # Errors
///
/// Returns the error of the example.
pub fn show(run: impl FnOnce() -> Outcome) -> Result<(), Box<dyn std::error::Error>> {
    if !interop_core::cuda::is_available() {
        println!("skipped: no CUDA driver on this machine");
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    simulated::give_kernels();
    print!("{}", run()?);
    Ok(())
}

/// Returns the number on the command line, or `otherwise` if there is none.
///
/// # Panics
///
/// If the argument is not a number.
#[must_use]
pub fn argument(otherwise: usize) -> usize {
    std::env::args().nth(1).map_or(otherwise, |argument| argument.parse().expect("the argument is a number"))
}
