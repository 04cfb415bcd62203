//! What the fuzz targets do with their bytes.
//!
//! Each target decodes its bytes into claims, hands them to the crate, and compares the answer with `oracle`: arithmetic
//! in 128 bits, and a walk over all elements where they are few. The answer must be the same both ways: what is legal is
//! taken, what is not is refused, and a refusal names a place.
//!
//! The targets run in two ways. `cargo xtask fuzz` gives them to libFuzzer. The tests of this package run the seeds, which
//! are the cases of the conformance corpus, and a hundred mutations of each, with any compiler.

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

/// A target: its name, and what it does with some bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("layout", layout::run),
    ("types", types::run),
    ("dict", dict::run),
    #[cfg(target_os = "linux")]
    ("tensor", tensor::run),
    #[cfg(all(target_os = "linux", feature = "python"))]
    ("python", python::run),
];

/// Runs a target over the files named on the command line: what libFuzzer wrote down when it found something.
///
/// # Panics
///
/// When there is no file, when one cannot be read, and as the target does.
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
