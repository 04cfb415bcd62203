//! `cargo xtask test`: the test suites and how each is run.

use std::process::Command;
use std::thread;

use crate::failure::Failure;
use crate::python::{Environment, Library, Requirements};
use crate::report::Report;
use crate::test_counts::Counts;
use crate::{command_step, cuda_core, extension, functions, ptx, sim, templates, workspace};

/// Everything except the Python extension, which is tested from Python, the packages that use a driver, and those without
/// a test.
const ALL: [&str; 11] = [
    "--workspace",
    "--exclude=interop-benches",
    "--exclude=interop-row-benches",
    "--exclude=interop-row-kernels",
    "--exclude=interop-public-api",
    "--exclude=interop-demo-extension",
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

/// A test suite.
#[derive(Clone, Copy)]
pub(crate) struct Suite {
    /// The word that selects it on the command line.
    pub(crate) word: &'static str,
    /// Its name in the report.
    pub(crate) name: &'static str,
    /// Its purpose.
    pub(crate) why: &'static str,
    /// Runs it and counts its tests.
    pub(crate) run: fn(&mut Counts) -> Result<(), Failure>,
}

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
const SUITES: [Suite; 10] = [
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
        run: python,
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
        run: python_long,
    },
    Suite {
        word: "ptx",
        name: "PTX of the kernels",
        why: "What drivers get is what the CUDA sources compile to.",
        run: ptx::check,
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

/// Runs the suites of `suites` that are named in `arguments`, or all.
pub(crate) fn choose(suites: &[Suite], arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.iter().find(|word| suites.iter().all(|suite| suite.word != **word)) {
        let words = suites.iter().map(|suite| suite.word).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("there is no `{unknown}`; there are: {words}")));
    }
    let mut report = Report::default();
    let wanted = |suite: &&Suite| arguments.is_empty() || arguments.iter().any(|word| word == suite.word);
    run_into(&mut report, suites.iter().filter(wanted));
    report.close()
}

/// Runs suites into a report.
pub(crate) fn run_into<'a>(report: &mut Report, suites: impl IntoIterator<Item = &'a Suite>) {
    for suite in suites {
        report.suite(suite.name, suite.why, suite.run);
    }
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

/// Runs a command that runs test programs, and sums up their tests.
pub(crate) fn follow(command: &mut Command, counts: &mut Counts) -> Result<(), Failure> {
    let mut failed = Vec::new();
    let outcome = command_step::follow(command, |line| {
        // Each test program prints one such line at its end.
        if let Some(result) = Counts::from_libtest(line) {
            *counts += result;
        } else if line.starts_with("test ") && line.ends_with(" ... FAILED") {
            failed.push(format!("\n    {line}"));
        }
    });
    // Repeats the names at the end, because they are hard to find among thousands of lines.
    outcome.map_err(|failure| Failure::new(format!("{failure}{}", failed.concat())))
}

/// The tests for the simulated driver. They run in a separate process, because other libraries would take the driver
/// for a GPU.
pub(crate) const ON_SIMULATION: [&str; 12] = [
    "tests/python/test_cuda_arrays.py",
    "tests/python/test_cuda_negotiation.py",
    "tests/python/test_cuda_calls.py",
    "tests/python/test_cuda_copies.py",
    "tests/python/test_cuda_exports.py",
    "tests/python/test_cuda_interfaces.py",
    "tests/python/test_cuda_relabeled.py",
    "tests/python/test_cuda_results.py",
    "tests/python/test_cuda_rules.py",
    "tests/python/test_cuda_simulated.py",
    "tests/python/test_cuda_streams.py",
    "tests/python/test_cuda_without_gil.py",
];

/// The GPU tests that need no partner library, for the faults in other libraries that motivated this crate.
///
/// The fault in JAX is left out, because its test needs JAX. They run here too, because GPUs are rarely available and
/// some of these cases are tested nowhere else.
const FAULTS: [&str; 11] = [
    "tests/gpu/dali_stream_none.py::test_every_stream_comes_in",
    "tests/gpu/dali_stream_none.py::test_zero_is_no_stream",
    "tests/gpu/dali_stream_none.py::test_nothing_pending_is_no_key",
    "tests/gpu/warp_missing_strides.py::test_strides_come_in",
    "tests/gpu/warp_missing_strides.py::test_ours_has_the_key",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[device-ours]",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[pinned-ours]",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[managed-ours]",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[pool-ours]",
    "tests/gpu/nanobind_device.py",
    "tests/gpu/as_array.py",
];

/// Builds the extension and runs pytest on it.
fn python(counts: &mut Counts) -> Result<(), Failure> {
    let environment = Environment::prepare(Requirements::Tests)?;
    let modules = extension::for_tests(&environment)?;
    if cfg!(target_os = "linux") {
        sim::build()?;
    }
    let python = || {
        let mut python = environment.python();
        python.env("PYTHONPATH", &modules);
        let options = LONG.iter().map(|file| format!("--ignore={file}"));
        python.env("PYTEST_ADDOPTS", in_two_processes(options));
        python
    };
    pytest_twice(python, counts)
}

/// Returns the value of `PYTEST_ADDOPTS` that runs the tests in two processes. With more, the imports of the libraries cost more
/// than they save.
pub(crate) fn in_two_processes(options: impl IntoIterator<Item = String>) -> String {
    options.into_iter().chain(["--numprocesses=2".to_owned()]).collect::<Vec<_>>().join(" ")
}

/// The Python tests that take a quarter of the time of all.
const LONG: [&str; 3] =
    ["tests/python/test_fuzz_negotiation.py", "tests/python/test_soak.py", "tests/python/test_stubs.py"];

/// Runs the Python tests that the everyday suite leaves out.
fn python_long(counts: &mut Counts) -> Result<(), Failure> {
    let environment = Environment::prepare(Requirements::Tests)?;
    let modules = extension::for_tests(&environment)?;
    let mut python = environment.python();
    python.env("PYTHONPATH", modules).env("PYTEST_ADDOPTS", in_two_processes([]));
    pytest(sim::hidden(&mut python), &LONG, counts)
}

/// Runs pytest on all tests without a driver, then on the tests for the simulated driver.
pub(crate) fn pytest_twice(python: impl Fn() -> Command, counts: &mut Counts) -> Result<(), Failure> {
    let ignored = ON_SIMULATION.iter().flat_map(|file| ["--ignore", *file]);
    let ignoring: Vec<&str> = ["tests/python"].into_iter().chain(ignored).collect();
    let everything = pytest(sim::hidden(&mut python()), &ignoring, counts);
    if !cfg!(target_os = "linux") {
        return everything;
    }
    let simulated = [&ON_SIMULATION[..], &FAULTS].concat();
    everything.and(pytest(sim::on_path(&mut python()), &simulated, counts))
}

/// The tests that `cargo xtask torture` runs.
const TORTURE: [&str; 5] = [
    "tests/python/test_torture.py",
    "tests/python/test_interpreter_exit.py",
    "tests/python/test_faults.py",
    "tests/python/test_lifetime.py",
    "tests/python/test_soak.py",
];

/// `cargo xtask torture`: searches for lost and repeated releases, for longer than the suite does.
pub(crate) fn torture(arguments: &[String]) -> Result<(), Failure> {
    let seconds = match arguments {
        [] => "60",
        [seconds] if seconds.parse::<u32>().is_ok() => seconds,
        _ => {
            return Err(Failure::usage(
                "write `cargo xtask torture`, or `cargo xtask torture SECONDS`".to_owned(),
            ));
        }
    };
    let environment = Environment::prepare(Requirements::Tests)?;
    let modules = extension::for_tests(&environment)?;
    let mut python = environment.python();
    python.env("PYTHONPATH", modules).env("INTEROP_TORTURE", seconds);
    pytest(sim::hidden(&mut python), &TORTURE, &mut Counts::default())
}

/// Runs pytest and sums up its tests.
pub(crate) fn pytest(python: &mut Command, what: &[&str], counts: &mut Counts) -> Result<(), Failure> {
    // No cache folder among the sources; a reason for every skipped test; a misspelt mark is an error; a deadlock ends
    // with the stack of every thread.
    python.args(["-m", "pytest", "-p", "no:cacheprovider", "-ra", "--color=no", "--strict-markers"]);
    python.args(["-o", "faulthandler_timeout=120", "-o", "faulthandler_exit_on_timeout=true"]).args(what);
    follow_pytest(python, counts)
}

/// Runs a command that is pytest, and sums up its tests.
pub(crate) fn follow_pytest(pytest: &mut Command, counts: &mut Counts) -> Result<(), Failure> {
    let mut last = Counts::default();
    let outcome = command_step::follow(pytest, |line| {
        // Only the last such line counts. An earlier one is captured output of a test.
        if let Some(result) = Counts::from_pytest(line) {
            last = result;
        }
    });
    *counts += last;
    outcome
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
        for folder in folders.iter().chain([&root.join("simulated-cuda-driver/tests/sim_driver")]) {
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

    /// Without the driver some of these files would skip all their tests.
    #[test]
    fn what_is_for_the_simulated_driver_runs_on_it() {
        let present = files::entries(&workspace::root().join("tests/python")).expect("the Python tests");
        let names = present.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
        let present =
            names.filter(|name| name.starts_with("test_cuda_")).map(|name| format!("tests/python/{name}"));
        let (mut present, mut listed) = (present.collect::<Vec<_>>(), ON_SIMULATION.to_vec());
        present.sort();
        listed.sort_unstable();
        assert_eq!(listed, present);
    }
}
