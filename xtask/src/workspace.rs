//! The workspace: where it is, what its core can be built with, and cargo in it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The optional parts of `interop-core` that add to it on any computer. Its feature `python` is not among them: a test
/// program with it would have to link Python; the example extension covers it. Nor is `cust`, which links libcuda: what
/// has it runs on the simulated driver.
pub(crate) const FEATURES: [&str; 5] = ["counters", "cudarc", "half", "ndarray", "num-complex"];

/// The argument that selects [`FEATURES`] when cargo works on the whole workspace.
pub(crate) fn all_features() -> String {
    format!("--features={}", FEATURES.map(|feature| format!("interop-core/{feature}")).join(","))
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// The folder for everything that is built; nothing is written anywhere else.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// Whether automation runs this, by the variable that every such service sets.
pub(crate) fn unattended() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// The cargo that runs us, in the workspace's folder.
pub(crate) fn cargo<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(root());
    if unattended() {
        // Nothing is built twice there, so what incremental builds write would never be read.
        cargo.env("CARGO_INCREMENTAL", "0");
    }
    cargo
}
