//! `cargo xtask ptx`: the kernels of the examples, compiled by NVRTC to the PTX that lies beside them.

use crate::counts::Counts;
use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::step;

const SCRIPT: &str = "examples/kernels/build_ptx.py";

/// Whether there is an NVRTC for this system (for these there are wheels).
const THERE_IS_A_COMPILER: bool = cfg!(any(target_os = "linux", all(windows, target_arch = "x86_64")));

/// Writes the PTX anew, or with `--check` tells where it is not what the sources compile to.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments {
        [] => build(&[]),
        [check] if check == "--check" => build(&["--check"]),
        _ => {
            Err(Failure::usage(format!("`ptx` takes `--check` or nothing, found `{}`", arguments.join(" "))))
        }
    }
}

/// The check as a suite of one test.
pub(crate) fn check(counts: &mut Counts) -> Result<(), Failure> {
    if !THERE_IS_A_COMPILER {
        println!("    skipped: there is no NVRTC for this system; the PTX was checked where there is one");
        counts.skipped = 1;
        return Ok(());
    }
    build(&["--check"])?;
    counts.passed = 1;
    Ok(())
}

fn build(arguments: &[&str]) -> Result<(), Failure> {
    if !THERE_IS_A_COMPILER {
        return Err(Failure::new(
            "there is no NVRTC for this system: it exists for Linux and for Windows on x86-64",
        ));
    }
    let environment = Environment::prepare(Requirements::Kernels)?;
    step::run(environment.python().arg(SCRIPT).args(arguments))
}
