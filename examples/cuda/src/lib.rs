//! The examples as functions, which the programs in `src/bin` print and the tests compare.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "small numbers, of which all sums are exact"
)]

pub mod bandwidth;
pub mod blur;
pub mod pinned;
#[cfg(target_os = "linux")]
pub mod simulated;
pub mod two_streams;
pub mod vector_add;

/// What an example prints, or why it could not run.
pub type Outcome = Result<String, Box<dyn std::error::Error>>;

/// The `main` of every example: prints, and says what is missing where there is no GPU.
///
/// # Errors
///
/// Those of the example.
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

/// The number on the command line, or another.
///
/// # Panics
///
/// When the argument is no number.
#[must_use]
pub fn argument(otherwise: usize) -> usize {
    std::env::args().nth(1).map_or(otherwise, |argument| argument.parse().expect("the argument is a number"))
}
