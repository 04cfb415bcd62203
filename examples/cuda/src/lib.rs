//! The examples as functions. The programs in `src/bin` print their results, and the tests check them.
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
