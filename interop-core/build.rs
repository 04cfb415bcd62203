//! Finds the README, whose examples are tests. Finds out whether PyO3 is built for a Python that is too old, so that `lib.rs`
//! can name the cure.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=INTEROP_README={}", readme());
    println!("cargo::rustc-check-cfg=cfg(python_too_old)");
    // `pyo3-ffi` passes on what it is built for: lines of `name=value`, as hexadecimal digits.
    let Ok(config) = std::env::var("DEP_PYTHON_PYO3_CONFIG") else { return };
    if minor_version(&decoded(&config)).is_some_and(|minor| minor < 11) {
        println!("cargo::rustc-cfg=python_too_old");
    }
}

/// Returns the path of the README: beside the manifest in a package, into which cargo copies it, or else above it.
fn readme() -> String {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let packaged = Path::new(&folder).join("README.md");
    let readme = if packaged.exists() { packaged } else { Path::new(&folder).join("../README.md") };
    readme.display().to_string()
}

/// Returns the minor version of the stable ABI, or else of the interpreter. Newer versions of PyO3 state the former in a line
/// such as `target_abi=CPython-abi3-3.10`.
fn minor_version(config: &str) -> Option<u32> {
    let value = |name: &str| config.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let version = value("target_abi").or_else(|| value("version"))?;
    version.rsplit("3.").next()?.parse().ok()
}

fn decoded(digits: &str) -> String {
    let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| digits.to_owned())
}
