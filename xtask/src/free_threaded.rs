//! Free-threaded Python: compile checks, and the tests on such an interpreter.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::test_counts::Counts;
use crate::test_runs::pytest;
use crate::{command_step, extension, files, python_tests, sim, workspace};

/// The packages for the tests that are available for free-threaded interpreters.
const PACKAGES: [&str; 3] = ["numpy", "pytest", "nanobind"];

/// Tests that do not apply, in addition to those for the simulated driver, which is single-threaded.
///
/// JAX is not installed. The tests of allocations and of failing allocations use allocator hooks of the interpreter
/// with the GIL (3.14 crashes on its own failed allocations).
const LEFT_OUT: [&str; 3] =
    ["tests/python/test_jax.py", "tests/python/test_allocations.py", "tests/python/test_faults.py"];

/// Returns why the tests cannot run in `cargo xtask nightly`, or `None`.
pub(crate) fn no_interpreter() -> Option<String> {
    let found = command_step::ask(Command::new("python3.14t").arg("--version"));
    found.is_none().then(|| "there is no `python3.14t`".into())
}

/// `cargo xtask free-threaded PYTHON`: runs the Python tests on a free-threaded interpreter of 3.14 or later.
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
    let left_out = LEFT_OUT.iter().chain(&python_tests::ON_SIMULATION).flat_map(|file| ["--ignore", *file]);
    let what: Vec<&str> = ["tests/python"].into_iter().chain(left_out).collect();
    pytest(sim::hidden(&mut tests), &what, &mut Counts::default())
}

/// Builds the extension for this interpreter, and returns the folder in which Python finds it.
fn build(python: &Path) -> Result<PathBuf, Failure> {
    let modules = folder().join("modules");
    let library =
        extension::compile_in(&workspace::root(), python.as_os_str(), &folder().join("extension"), true)?;
    files::replace(&library, &modules.join("interop_demo.so"))?;
    Ok(modules)
}

fn folder() -> PathBuf {
    workspace::target().join("free-threaded")
}

/// Runs compile checks for interpreters that need not be installed: PyO3 reads a description of them.
pub(crate) fn check() -> Result<(), Failure> {
    let folder = folder();
    // Version-specific CPython 3.14, and the stable ABI that both builds of CPython share since 3.15.
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
