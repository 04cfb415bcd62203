//! `cargo xtask test cuda-core`: the adapter of NVIDIA's `cuda-core`.
//!
//! It is a suite apart: it needs CUDA headers and libclang, which come from `PyPI`, and a newer Rust than the rest. So the
//! feature is in no set of features of the other commands.

use std::process::Command;

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::suite::Suite;
use crate::test_counts::Counts;
use crate::test_runs::follow;
use crate::{command_step, sim, workspace};

/// The feature of `interop-core`.
pub(crate) const FEATURE: &str = "cuda-core";

const MANIFEST: &str = "--manifest-path=tests/cuda-core/Cargo.toml";

/// The version of the simulated driver: `cuda-core` takes no driver of an older major version than its headers.
const DRIVER_VERSION: &str = "13000";

pub(crate) const SUITE: Suite = Suite {
    word: FEATURE,
    name: "Rust tests, cuda-core",
    why: "The adapter of NVIDIA's CUDA Rust, with headers and libclang from PyPI, on the simulated driver.",
    run,
};

fn run(counts: &mut Counts) -> Result<(), Failure> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        counts.skip(1, "libclang and the headers are installed for Linux on x86-64 only");
        return Ok(());
    }
    let headers = Headers::install()?;
    sim::build()?;
    command_step::run(&mut workspace::cargo(["fmt", "--check", MANIFEST]))?;
    let feature = format!("--features=interop-core/{FEATURE}");
    let core = ["clippy", "--locked", "--package=interop-core", "--no-default-features", &feature];
    command_step::run(headers.known_to(&mut workspace::cargo(core)).args(["--", "-D", "warnings"]))?;
    let tests = ["clippy", "--locked", "--all-targets", MANIFEST];
    command_step::run(headers.known_to(&mut workspace::cargo(tests)).args(["--", "-D", "warnings"]))?;
    let docs = ["test", "--locked", "--package=interop-core", "--doc", &feature];
    follow(headers.known_to(&mut workspace::cargo(docs)).arg("adapters::cuda_core"), counts)?;
    let mut cargo = workspace::cargo(["test", "--locked", MANIFEST]);
    sim::on_path(headers.known_to(&mut cargo)).env("SIMULATED_CUDA_VERSION", DRIVER_VERSION);
    follow(&mut cargo, counts)
}

/// The headers and libclang, as environment variables.
pub(crate) struct Headers([(&'static str, String); 3]);

impl Headers {
    /// Installs them into the virtual environment, unless they are there.
    pub(crate) fn install() -> Result<Self, Failure> {
        let packages = Environment::prepare(Requirements::CudaCore)?.site_packages()?;
        let place = |folder: &str| packages.join(folder).display().to_string();
        // The wheel of libclang has no `stddef.h`.
        let builtin = command_step::ask(Command::new("cc").arg("-print-file-name=include"));
        let builtin = builtin.ok_or_else(|| Failure::new("`cc` does not tell where its headers are"))?;
        Ok(Self([
            ("CUDA_HOME", place("nvidia/cu13")),
            ("LIBCLANG_PATH", place("clang/native")),
            ("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{builtin}")),
        ]))
    }

    /// Tells a command where they are, and gives it a folder of its own: other builds would begin anew with these variables.
    pub(crate) fn known_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let variables = self.0.iter().map(|(name, value)| (*name, value));
        command.envs(variables).env("CARGO_TARGET_DIR", workspace::target().join("cuda-core"))
    }
}
