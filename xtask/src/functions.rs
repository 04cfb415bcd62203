//! The functions of `interop-tvm-ffi`, called from Python libraries.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::PathBuf;
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

/// The tests that also run with the oldest PyTorch.
const OPERATORS: [&str; 2] = ["tests/functions/test_operators.py", "tests/functions/test_loading.py"];

fn run(counts: &mut Counts) -> Result<(), Failure> {
    let (environment, [packages, oldest]) = prepare()?;
    sim::build()?;
    let packages_of_functions = ["--package=interop-function-tests", "--package=relu-rust"];
    let mut cargo = workspace::cargo(["build", "--locked"].into_iter().chain(packages_of_functions));
    command_step::run(cargo.arg(workspace::plain_features()))?;
    let library = |name| workspace::target().join(format!("debug/{DLL_PREFIX}{name}{DLL_SUFFIX}"));
    let (hello, modules) = (templates::hello_functions()?, extension::for_tests(&environment)?);
    let python_with = |first: &[&PathBuf]| {
        let (mut python, root) = (environment.python(), workspace::root());
        let (tests, corpus) = (root.join("tests/python"), root.join("tests/conformance"));
        let folders = first.iter().copied().chain([&packages, &hello, &modules, &tests, &corpus]);
        python.env("PYTHONPATH", std::env::join_paths(folders).unwrap_or_default());
        python.env("INTEROP_FUNCTIONS", library("interop_function_tests")).env("RELU", library("relu_rust"));
        python.env("HELLO_FUNCTIONS", &hello);
        python
    };
    let python = || python_with(&[]);
    let hello_tests = hello.join("tests").display().to_string();
    let ignored = ["tests/functions", &hello_tests, "--ignore", SIMULATED];
    pytest(sim::hidden(&mut python()), &ignored, counts)?;
    pytest(sim::hidden(&mut python_with(&[&oldest])), &OPERATORS, counts)?;
    if cfg!(target_os = "linux") {
        pytest(sim::on_path(&mut python()), &[SIMULATED], counts)?;
    }
    Ok(())
}

/// Returns the environment, the folder with further packages, and that with the oldest PyTorch.
fn prepare() -> Result<(Environment, [PathBuf; 2]), Failure> {
    let environment = Environment::prepare(Requirements::Functions)?;
    let mut folders = Requirements::Functions.apart().into_iter().map(|(_, folder)| folder);
    let mut next = || {
        let folder = folders.next().unwrap_or_default();
        if cfg!(target_os = "linux") {
            let script = "tests/functions/torch_without_cuda.py";
            command_step::run(Command::arg(&mut environment.python(), script).arg(&folder))?;
        }
        Ok::<_, Failure>(folder)
    };
    let folders = [next()?, next()?];
    Ok((environment, folders))
}
