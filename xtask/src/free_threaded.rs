//! Python without the lock: compile checks, and the tests where there is such an interpreter.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::test_counts::Counts;
use crate::{command_step, extension, files, sim, suites, workspace};

/// What the tests need, of what is there for such an interpreter.
const PACKAGES: [&str; 3] = ["numpy", "pytest", "nanobind"];

/// Tests that say nothing there, beside those for the simulated driver, which has one thread at a time: JAX is not installed;
/// the allocations that are counted or made to fail are those of the interpreter that has the lock (3.14 dies of its own
/// failures).
const LEFT_OUT: [&str; 3] =
    ["tests/python/test_jax.py", "tests/python/test_allocations.py", "tests/python/test_faults.py"];

/// `cargo xtask free-threaded PYTHON`: the Python tests on an interpreter of 3.14 or later that was built without the lock.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let [python] = arguments else {
        return Err(Failure::usage(
            "write `cargo xtask free-threaded PYTHON`, such as `python3.14t`".to_owned(),
        ));
    };
    command_step::announce(
        "Free-threaded Python",
        "An environment of its own, and the extension without the stable interface.",
    );
    let environment = folder().join("venv");
    command_step::run(Command::new(python).args(["-m", "venv"]).arg(&environment))?;
    let inside = || Command::new(environment.join("bin/python"));
    command_step::run(
        inside().args(["-m", "pip", "install", "--quiet", "--only-binary=:all:"]).args(PACKAGES),
    )?;
    let module = build(&environment.join("bin/python"))?;
    let mut tests = inside();
    tests.env("PYTHON_GIL", "0").env("PYTHONPATH", module);
    let left_out = LEFT_OUT.iter().chain(&suites::ON_SIMULATION).flat_map(|file| ["--ignore", *file]);
    let what: Vec<&str> = ["tests/python"].into_iter().chain(left_out).collect();
    suites::pytest(sim::hidden(&mut tests), &what, &mut Counts::default())
}

/// Builds the extension for this interpreter, and gives the folder in which Python finds it.
fn build(python: &Path) -> Result<PathBuf, Failure> {
    let modules = folder().join("modules");
    let library = extension::compile_for(python.as_os_str(), &folder().join("extension"))?;
    files::replace(&library, &modules.join("interop_demo.so"))?;
    Ok(modules)
}

fn folder() -> PathBuf {
    workspace::target().join("free-threaded")
}

/// Compile checks for interpreters that need not be here: they are described to PyO3 instead.
pub(crate) fn check() -> Result<(), Failure> {
    let folder = folder();
    // A CPython of its own version, and the stable interface that both kinds of CPython have from 3.15 on.
    for (version, features) in [("3.14", "python"), ("3.15", "python,pyo3/abi3t-py315")] {
        let described = folder.join(format!("python-{version}.txt"));
        let text = format!(
            "implementation=CPython\nversion={version}\nshared=true\npointer_width=64\n\
             build_flags=Py_GIL_DISABLED\nsuppress_build_script_link_lines=true\n"
        );
        files::write(&described, text)?;
        let mut check = workspace::cargo(["check", "--package=interop-core", "--locked"]);
        check.arg(format!("--features={features}")).arg("--target-dir").arg(&folder);
        command_step::run(check.env("PYO3_CONFIG_FILE", &described).env("RUSTFLAGS", "-D warnings"))?;
    }
    Ok(())
}
