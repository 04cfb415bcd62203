//! `cargo xtask pyo3`: runs the Python tests with each supported minor version of `PyO3`.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::test_counts::Counts;
use crate::{extension, files, python_tests, sim, workspace};

/// The versions that the workspace's manifest allows.
const RANGE: &str = ">=0.28, <0.31";
const MINORS: [&str; 3] = ["0.28", "0.29", "0.30"];
/// The packages that the extension consists of, and those that its kernels are tested with.
const PACKAGES: [&str; 6] = [
    "interop-core",
    "interop-derive",
    "interop-kernel",
    "examples/py-extension",
    "simulated-cuda",
    "simulated-cuda-driver",
];

/// Tests of bugs that `PyO3` had before 0.29: a thread that ended inside its frames ended the process (its pull request
/// 6085), and each instance kept a reference to its class (6224).
const FAULTS_UNTIL_29: [&str; 2] = [
    "tests/python/test_interpreter_exit.py::test_the_end_of_the_interpreter",
    "tests/python/test_lifetime.py::test_references_to_modules_and_singletons_stay_as_they_are",
];

/// Runs the tests with the named minor versions, or with all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.iter().find(|minor| !MINORS.contains(&minor.as_str())) {
        let minors = MINORS.join(", ");
        return Err(Failure::usage(format!("there is no PyO3 `{unknown}` here; there are: {minors}")));
    }
    let wanted = |minor: &&&str| arguments.is_empty() || arguments.iter().any(|argument| argument == *minor);
    MINORS.iter().filter(wanted).try_for_each(|minor| test(minor, &mut Counts::default()))
}

/// Runs the tests with the oldest version, for `ci`.
pub(crate) fn oldest(counts: &mut Counts) -> Result<(), Failure> {
    test(MINORS[0], counts)
}

/// Builds the extension with this minor version in a separate workspace, and runs the Python tests on it.
fn test(minor: &str, counts: &mut Counts) -> Result<(), Failure> {
    let environment = Environment::prepare(Requirements::Tests)?;
    extension::install_stubs(&environment)?;
    if cfg!(target_os = "linux") {
        sim::build()?;
    }
    let folder = workspace::target().join("pyo3").join(minor);
    let copy = folder.join("workspace");
    copy_workspace(&copy, minor)?;
    let python = environment.python().get_program().to_owned();
    let library = extension::compile_in(&copy, &python, &folder.join("target"), false)?;
    let modules = folder.join("modules");
    files::replace(&library, &modules.join("interop_demo.abi3.so"))?;
    let with_module = || {
        let mut python = environment.python();
        python.env("PYTHONPATH", &modules);
        let left_out = FAULTS_UNTIL_29.iter().filter(|_| minor == MINORS[0]);
        let left_out = left_out.map(|test| format!("--deselect={test}"));
        python.env("PYTEST_ADDOPTS", python_tests::in_two_processes(left_out));
        python
    };
    python_tests::pytest_twice(with_module, counts)
}

/// Copies the extension's packages as a workspace that allows only this minor version and keeps all other versions.
fn copy_workspace(copy: &Path, minor: &str) -> Result<(), Failure> {
    let root = workspace::root();
    let manifest = files::read(&root.join("Cargo.toml"))?;
    let narrowed = manifest.replace(&format!("version = \"{RANGE}\""), &format!("version = \"{minor}\""));
    if narrowed == manifest {
        return Err(Failure::new(format!("Cargo.toml does not allow PyO3 `{RANGE}`")));
    }
    let is_list = |line: &str| line.starts_with("members = [") || line.starts_with("default-members = [");
    let mut lines: Vec<&str> = narrowed.lines().filter(|line| !is_list(line)).collect();
    let members = format!("members = {PACKAGES:?}");
    let place = lines.iter().position(|line| *line == "[workspace]").map_or(0, |at| at + 1);
    lines.insert(place, &members);
    for package in PACKAGES {
        // Files that no longer exist must not be built.
        let place: PathBuf = copy.join(package);
        files::clear(&place)?;
        files::copy_all(&root.join(package), &place)?;
    }
    files::copy(&root.join("README.md"), &copy.join("README.md"))?;
    files::replace(&root.join("Cargo.lock"), &copy.join("Cargo.lock"))?;
    files::write(&copy.join("Cargo.toml"), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_that_of_the_manifest() {
        let manifest =
            files::read(&workspace::root().join("Cargo.toml")).expect("the manifest of the workspace");
        assert!(manifest.contains(&format!("pyo3 = {{ version = \"{RANGE}\"")), "{RANGE}");
        let (first, last) = (MINORS[0], MINORS[MINORS.len() - 1]);
        let next: u32 = last.trim_start_matches("0.").parse::<u32>().expect("a minor version") + 1;
        assert_eq!(format!(">={first}, <0.{next}"), RANGE);
    }
}
