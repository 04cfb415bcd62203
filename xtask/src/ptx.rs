//! `cargo xtask ptx`: compiles the CUDA kernels of the core and of the examples to PTX, those in C++ with NVRTC.

use crate::command_step;
use crate::failure::{Failure, no_arguments};
use crate::python::{Environment, Requirements};
use crate::rust_kernels;
use crate::test_counts::Counts;

const SCRIPT: &str = "examples/kernels/build_ptx.py";

/// Whether NVRTC exists for this system. Its wheels exist only for these.
const THERE_IS_A_COMPILER: bool = cfg!(any(target_os = "linux", all(windows, target_arch = "x86_64")));
const NO_COMPILER: &str = "there is no NVRTC for this system: it exists for Linux and for Windows on x86-64";

/// Writes the PTX files.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("ptx", arguments)?;
    rust_kernels::build()?;
    if !THERE_IS_A_COMPILER {
        return Err(Failure::new(NO_COMPILER));
    }
    build(&[])
}

/// Checks that the PTX is what the sources compile to, as a suite with one test for each crate of kernels, and one for those in C++.
pub(crate) fn check(counts: &mut Counts) -> Result<(), Failure> {
    counts.passed = rust_kernels::check()?;
    if !THERE_IS_A_COMPILER {
        counts.skip(1, NO_COMPILER);
        return Ok(());
    }
    build(&["--check"])?;
    counts.passed += 1;
    Ok(())
}

/// Compiles the kernels in C++, or checks them.
pub(crate) fn build(arguments: &[&str]) -> Result<(), Failure> {
    let environment = Environment::prepare(Requirements::Kernels)?;
    command_step::run(environment.python().arg(SCRIPT).args(arguments))
}
