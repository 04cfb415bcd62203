//! The functions of `interop-tvm-ffi`, called from Python libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::suite::Suite;
use crate::test_counts::Counts;
use crate::test_runs::pytest;
use crate::{command_step, extension, sim, templates, workspace};

pub(crate) const SUITE: Suite = Suite {
    word: "functions",
    name: "Functions",
    why: "Rust functions called from NumPy, PyTorch, JAX, C and kernels of Hugging Face, and on the simulated driver.",
    run,
};

/// The tests that run on the simulated driver, in a process without other libraries that would take it for a GPU.
const SIMULATED: &str = "tests/functions/test_simulated.py";

fn run(counts: &mut Counts) -> Result<(), Failure> {
    let (environment, packages) = prepare()?;
    sim::build()?;
    let mut cargo = workspace::cargo(["build", "--locked", "--package=interop-function-tests"]);
    command_step::run(cargo.arg(workspace::plain_features()))?;
    let library = format!(
        "debug/{}interop_function_tests{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let (hello, modules) = (templates::hello_functions()?, extension::for_tests(&environment)?);
    let python = || {
        let (mut python, root) = (environment.python(), workspace::root());
        let folders =
            [&packages, &hello, &modules, &root.join("tests/python"), &root.join("tests/conformance")];
        python.env("PYTHONPATH", std::env::join_paths(folders).unwrap_or_default());
        python.env("INTEROP_FUNCTIONS", workspace::target().join(&library)).env("HELLO_FUNCTIONS", &hello);
        python
    };
    let hello_tests = hello.join("tests").display().to_string();
    let ignored = ["tests/functions", &hello_tests, "--ignore", SIMULATED];
    pytest(sim::hidden(&mut python()), &ignored, counts)?;
    if cfg!(target_os = "linux") {
        pytest(sim::on_path(&mut python()), &[SIMULATED], counts)?;
    }
    Ok(())
}

/// Returns the environment and the folder with further packages.
fn prepare() -> Result<(Environment, PathBuf), Failure> {
    let environment = Environment::prepare(Requirements::Functions)?;
    let (_, packages) = Requirements::Functions.apart().remove(0);
    if cfg!(target_os = "linux") && !has_stubs(&packages) {
        let script = "tests/functions/torch_without_cuda.py";
        command_step::run(Command::arg(&mut environment.python(), script).arg(&packages))?;
    }
    Ok((environment, packages))
}

fn has_stubs(packages: &Path) -> bool {
    packages.join("nvidia/cu13/lib").is_dir()
}
