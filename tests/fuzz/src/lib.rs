//! The fuzz targets.
//!
//! Each target decodes its bytes to an input, passes it to the crate, and compares the result with `oracle`. The oracle
//! uses 128-bit arithmetic, and visits all elements if there are few. Legal inputs must be accepted, illegal ones must
//! be rejected, and each error must name a location.
//!
//! The targets run in two ways. `cargo xtask fuzz` passes them to libFuzzer. The tests of this package run the seeds,
//! which are the cases of the conformance corpus, and a hundred mutations of each, with any compiler.

pub mod dict;
pub mod input;
pub mod layout;
pub mod oracle;
#[cfg(all(target_os = "linux", feature = "python"))]
pub mod python;
pub mod seeds;
#[cfg(target_os = "linux")]
pub mod tensor;
pub mod types;

#[cfg(target_os = "linux")]
mod guarded;

/// A target: its name, and the function that processes an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("layout", layout::run),
    ("types", types::run),
    ("dict", dict::run),
    #[cfg(target_os = "linux")]
    ("tensor", tensor::run),
    #[cfg(all(target_os = "linux", feature = "python"))]
    ("python", python::run),
];

/// Runs a target on the files named on the command line, which are the inputs that libFuzzer saved for a failure.
///
/// # Panics
///
/// If there is no file, if a file cannot be read, or if the target panics.
pub fn replay(target: fn(&[u8])) {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    assert!(!files.is_empty(), "name the files to run; `cargo xtask fuzz` looks for new ones");
    for file in files {
        let shown = std::path::Path::new(&file).display();
        let data = std::fs::read(&file).unwrap_or_else(|error| panic!("{shown}: {error}"));
        target(&data);
        println!("{shown}: {} bytes, nothing found", data.len());
    }
}
