//! The workspace: its location, the features of its core, and cargo commands in it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The features of `interop-core`, except that of `cuda-core`, which needs CUDA headers to compile.
pub(crate) const FEATURES: [&str; 11] = [
    "derive",
    "host-launch",
    "python",
    "stubs",
    "cust",
    "cudarc",
    "half",
    "ndarray",
    "num-complex",
    "rayon",
    "counters",
];

/// Returns the argument that selects all features except these.
pub(crate) fn features_but(left_out: &[&str]) -> String {
    let chosen = FEATURES.iter().filter(|feature| !left_out.contains(feature));
    let chosen: Vec<_> = chosen.map(|feature| format!("interop-core/{feature}")).collect();
    format!("--features={}", chosen.join(","))
}

/// Returns the argument that selects the features that work on any computer.
///
/// A test program with the feature `python` would have to link Python; the example extension covers it. `cust` links
/// libcuda, so packages with it run on the simulated driver.
pub(crate) fn plain_features() -> String {
    features_but(&["python", "stubs", "cust"])
}

/// Returns the folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// Returns the folder for all build results. Nothing is written anywhere else.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// Whether automation runs this command. Every CI service sets this variable.
pub(crate) fn unattended() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Returns the cargo that runs xtask, in the workspace's folder.
pub(crate) fn cargo<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).current_dir(root());
    if unattended() {
        // Nothing is built twice there, so incremental build data would never be used.
        cargo.env("CARGO_INCREMENTAL", "0");
    }
    cargo
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_feature_is_listed_here_and_for_the_documentation() {
        let manifest =
            crate::files::read(&root().join("interop-core/Cargo.toml")).expect("the manifest of the core");
        let (_, features) = manifest.split_once("[features]\n").expect("the core has features");
        let (features, rest) = features.split_once("\n[").expect("dependencies follow");
        let lines = features.lines().filter(|line| !line.starts_with('#') && !line.starts_with("default"));
        let names: BTreeSet<_> =
            lines.filter_map(|line| line.split_once(" =")).map(|(name, _)| name).collect();
        assert_eq!(names, FEATURES.into_iter().chain([crate::cuda_core::FEATURE]).collect());
        let (_, documented) =
            rest.split_once("[package.metadata.docs.rs]").expect("docs.rs is told what to build");
        for feature in FEATURES {
            assert!(documented.contains(&format!("{feature:?}")), "docs.rs is not told of `{feature}`");
        }
    }
}
