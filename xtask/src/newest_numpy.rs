//! The Python tests with the newest NumPy, which has no wheel for the oldest Python versions.

use std::process::Command;

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::test_counts::Counts;
use crate::test_runs::pytest;
use crate::{command_step, extension, python_tests, sim, workspace};

/// A Python for which the newest NumPy has a wheel.
const PYTHON: &str = "3.13";

/// Tests that do not apply, in addition to those for the simulated driver. JAX is not installed. The tests of failing
/// allocations use allocator hooks of the interpreter, which differ between its versions. A million exchanges are those of
/// `python-long`.
const LEFT_OUT: [&str; 3] =
    ["tests/python/test_jax.py", "tests/python/test_faults.py", "tests/python/test_soak.py"];

/// Runs the tests if this Python is installed; otherwise skips them with the reason.
pub(crate) fn suite(counts: &mut Counts) -> Result<(), Failure> {
    let folder = workspace::target().join("newest-numpy");
    let environment = folder.join("venv");
    // With `pyenv`, the variable selects the version.
    let mut create = Command::new(format!("python{PYTHON}"));
    create.env("PYENV_VERSION", PYTHON).args(["-m", "venv"]).arg(&environment);
    if command_step::ask(&mut create).is_none() {
        counts.skip(1, format_args!("there is no `python{PYTHON}` that makes virtual environments"));
        return Ok(());
    }
    let python = || {
        let mut python = Command::new(environment.join("bin/python"));
        python.current_dir(workspace::root()).args(["-B", "-u"]);
        python
    };
    let mut pip = python();
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    command_step::run(pip.args(["--requirement", "tests/python/numpy/newest.txt"]))?;
    let modules = extension::for_tests(&Environment::prepare(Requirements::Tests)?)?;
    let left_out = LEFT_OUT.iter().chain(&python_tests::ON_SIMULATION).flat_map(|file| ["--ignore", *file]);
    let what: Vec<&str> = ["tests/python"].into_iter().chain(left_out).collect();
    let mut python = python();
    python.env("PYTHONPATH", modules).env("PYTEST_ADDOPTS", python_tests::in_two_processes([]));
    pytest(sim::hidden(&mut python), &what, counts)
}
