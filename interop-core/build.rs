//! Finds out whether PyO3 is built for a Python that is too old, so that `lib.rs` can name the cure.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(python_too_old)");
    // `pyo3-ffi` passes on the Python that it is built for, as lines of `name=value`.
    let Ok(config) = std::env::var("DEP_PYTHON_PYO3_CONFIG") else { return };
    let minor =
        config.split("version=3.").nth(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    if minor.flatten().and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor < 11) {
        println!("cargo::rustc-cfg=python_too_old");
    }
}
