//! `cargo xtask test`: the test suites and how each is run.

use std::process::Command;
use std::thread;

use crate::failure::Failure;
use crate::python::{Environment, Library, Requirements};
use crate::report::Report;
use crate::suite::{Suite, choose};
use crate::test_counts::Counts;
use crate::test_runs::follow;
use crate::{cuda_core, extension, functions, ptx, python_tests, sim, templates, workspace};

/// Everything except the Python extension, which is tested from Python, the packages that use a driver, and those without
/// a test.
const ALL: [&str; 12] = [
    "--workspace",
    "--exclude=interop-benches",
    "--exclude=interop-row-benches",
    "--exclude=interop-row-kernels",
    "--exclude=interop-public-api",
    "--exclude=interop-demo-extension",
    "--exclude=interop-ipc-python",
    "--exclude=interop-class-tests",
    "--exclude=simulated-cuda-driver",
    "--exclude=cuda-smoke",
    "--exclude=interop-cuda-examples",
    "--exclude=interop-cuda-tests",
];

/// The packages that run on the simulated driver. Those with `cust` also link it.
const SIMULATED: [&str; 4] = [
    "--package=simulated-cuda-driver",
    "--package=cuda-smoke",
    "--package=interop-cuda-examples",
    "--package=interop-cuda-tests",
];

/// The packages that compute at run time.
const RUNTIME: [&str; 4] = [
    "--package=interop-core",
    "--package=interop-tests",
    "--package=interop-runtime-tests",
    "--package=interop-demo-kernels",
];

/// The number of suites that `cargo xtask test` runs: they tell somebody who changed the code whether it still works. The
/// others build everything once more, or need more than Rust and Python.
const EVERYDAY: usize = 3;

/// The seconds that each of them takes in a fresh clone on two cores, for the estimate.
const SECONDS: [u32; EVERYDAY] = [200, 50, 100];

/// The suites that `cargo xtask ci` runs.
pub(crate) const CHANGE: &[Suite] = SUITES.split_at(EVERYDAY + 1).0;

/// The suites that `cargo xtask nightly` runs.
pub(crate) const LONGER: &[Suite] = SUITES.split_at(EVERYDAY + 1).1;

/// All suites, in the order in which they run: the everyday ones, the other one of `cargo xtask ci`, those of
/// `cargo xtask nightly`.
const SUITES: [Suite; 12] = [
    Suite {
        word: "debug",
        name: "Rust tests, debug build",
        why: "The whole workspace with overflow checks and debug assertions, and the messages of the derive.",
        run: |counts| rust(&ALL, &["--tests"], sim::hidden, counts),
    },
    Suite {
        word: "doc",
        name: "Rust doc tests",
        why: "Every example in the documentation and the README compiles and does what it says.",
        run: doc,
    },
    Suite {
        word: "python",
        name: "Python tests",
        why: "The example extension, against the libraries that people use, in a virtual environment of its own.",
        run: python_tests::python,
    },
    Suite {
        word: "cuda",
        name: "Rust tests, simulated CUDA driver",
        why: "The adapters and everything else that is linked to a driver, on one that needs no GPU.",
        run: |counts| {
            rust(&SIMULATED, &["--tests"], sim::on_path, counts)?;
            rust(
                &["--package=interop-core"],
                &["--doc", "--features=cust", "--", "adapters", "quick_start"],
                sim::on_path,
                counts,
            )
        },
    },
    Suite {
        word: "release",
        name: "Rust tests, release build",
        why: "The runtime without those: a number that would wrap must be caught by a check of our own.",
        run: |counts| {
            // The test `messages` checks compiler messages, which are the same in both builds.
            let arguments = ["--tests", "--release", "--", "--exact", "--skip", "messages"];
            rust(&RUNTIME, &arguments, sim::hidden, counts)
        },
    },
    Suite {
        word: "python-long",
        name: "Python tests that take long",
        why: "Random producers, the memory of the process after many exchanges, and the type stubs by mypy.",
        run: python_tests::python_long,
    },
    Suite {
        word: "ptx",
        name: "PTX of the kernels",
        why: "What drivers get is what the CUDA sources compile to.",
        run: ptx::check,
    },
    Suite {
        word: "processes",
        name: "Processes that are killed",
        why: "Two thousand, at each step and at random, and three million hostile messages.",
        run: |counts| {
            let long = ["--test=two_processes", "--", "--ignored", "long::"];
            rust(&["--package=interop-ipc"], &long, sim::hidden, counts)
        },
    },
    Suite {
        word: "random-kernels",
        name: "Random kernels",
        why: "Launches over arrays of the CPU leave the bits of `run`, with any number of threads.",
        run: random_kernels,
    },
    Suite {
        word: "templates",
        name: "Projects to start from",
        why: "Copied out and built with maturin from PyPI, as a user would.",
        run: templates::run,
    },
    functions::SUITE,
    cuda_core::SUITE,
];

/// Runs the suites named in `arguments`, or the everyday ones.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return choose(&SUITES, arguments);
    }
    // The packages arrive while the compiler works. If they do not, the suite that needs them says why.
    drop(thread::spawn(|| Environment::prepare(Requirements::Tests)));
    let mut report = Report::default();
    for (at, suite) in SUITES[..EVERYDAY].iter().enumerate() {
        let minutes = SECONDS[at..].iter().sum::<u32>().div_ceil(60);
        println!(
            "\nSuite {} of {EVERYDAY}. In a fresh clone, two cores need about {minutes} min more.",
            at + 1
        );
        report.suite(suite.name, suite.why, suite.run);
    }
    report.close()
}

/// Runs `cargo test` for some packages with the features that add tests, and continues after a failing program.
///
/// `with` determines which driver the tests find.
fn rust(
    packages: &[&str],
    arguments: &[&str],
    with: fn(&mut Command) -> &mut Command,
    counts: &mut Counts,
) -> Result<(), Failure> {
    sim::build()?;
    let mut command = workspace::cargo(["test", "--no-fail-fast", "--locked"]);
    with(&mut command).args(packages).arg(workspace::plain_features()).args(arguments);
    follow(&mut command, counts)
}

/// Runs more random kernels than the everyday suite.
fn random_kernels(counts: &mut Counts) -> Result<(), Failure> {
    for seed in ["3", "4", "5"] {
        let mut cargo = workspace::cargo(["test", "--locked", "--package=interop-random-kernels"]);
        follow(cargo.envs([("RANDOM_KERNELS_SEED", seed), ("RANDOM_KERNELS", "24")]), counts)?;
    }
    Ok(())
}

/// Runs the doc examples of all packages, then those that need PyO3 and link Python, including the README and the guide.
/// The package `interop-demo-extension` is named because the extension then shares the build of the core.
fn doc(counts: &mut Counts) -> Result<(), Failure> {
    rust(&ALL, &["--doc"], sim::hidden, counts)?;
    let library = match Library::find() {
        Ok(library) => library,
        Err(why) => {
            counts.skip(1, format_args!("the README and the pages of the feature `python`: {why}"));
            return Ok(());
        }
    };
    let mut cargo = workspace::cargo(["test", "--doc", "--locked", "--package=interop-core"]);
    cargo.args(["--package=interop-demo-extension", &workspace::features_but(&["stubs", "cust"])]);
    library.link(&mut cargo);
    extension::settings(&mut cargo)?;
    let before = counts.passed;
    follow(cargo.args(["--", "Readme", "guide", "python"]), counts)?;
    if counts.passed == before {
        return Err(Failure::new("no example of the README and of the feature `python` was found"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::files;

    /// Returns the text of the file that declares the modules of a folder.
    fn modules_of(folder: &Path) -> Option<String> {
        ["main.rs", "mod.rs"].iter().find_map(|name| files::read(&folder.join(name)).ok())
    }

    /// Returns the Rust files and folders of a test folder that no `mod` declares, at any depth. If the folder has no
    /// file that declares modules, it returns all of them.
    fn unnamed(folder: &Path) -> Vec<String> {
        let modules = modules_of(folder).unwrap_or_default();
        let is_named = |name: &str| modules.lines().any(|line| line.trim() == format!("mod {name};"));
        let mut unnamed = Vec::new();
        for path in files::entries(folder).expect("a folder of tests") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // Separate programs, which the manifest lists.
            if ["main", "mod", "smoke", "surroundings", "ui"].contains(&name.as_str()) {
                continue;
            }
            let is_file = path.extension().is_some_and(|extension| extension == "rs");
            if (is_file || modules_of(&path).is_some()) && !is_named(&name) {
                unnamed.push(path.display().to_string());
            }
            if path.is_dir() {
                unnamed.extend(self::unnamed(&path));
            }
        }
        unnamed
    }

    #[test]
    fn no_file_of_tests_is_left_out() {
        let root = workspace::root();
        let folders = ["derive", "runtime", "driver", "cuda"].map(|name| root.join("tests").join(name));
        let own = [
            "simulated-cuda-driver/tests/sim_driver",
            "simulated-cuda-driver/tests/processes",
            "interop-ipc/tests/two_processes",
        ];
        let own = own.map(|name| root.join(name));
        for folder in folders.iter().chain(&own) {
            assert_eq!(unnamed(folder), [""; 0], "no `mod` names these, so nothing in them runs");
        }
        let derive = root.join("tests/derive");
        let manifest = files::read(&derive.join("Cargo.toml")).expect("the manifest of the tests");
        for path in files::entries(&derive.join("surroundings")).expect("a folder of tests") {
            let line =
                format!("path = \"surroundings/{}\"", path.file_name().unwrap_or_default().to_string_lossy());
            assert!(manifest.contains(&line), "tests/derive/Cargo.toml has no test with `{line}`");
        }
    }
}
