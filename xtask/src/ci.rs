//! `cargo xtask ci`: what every change must pass. `cargo xtask nightly`: the checks that take longer.

use crate::failure::{Failure, no_arguments};
use crate::report::Report;
use crate::suite::run_into;
use crate::suites::{CHANGE, LONGER};
use crate::{
    COMMANDS, Command, Runs, command_step, free_threaded, fuzz, guard, newest_numpy, packages, public_items,
    pyo3, release, sim, workspace,
};

/// Runs what a change must pass, even after a check has failed. Two cores need about twenty minutes in a fresh clone.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("ci", arguments)?;
    let mut report = Report::default();
    report.check("Format", "The code is laid out by rustfmt, so that a diff shows what changed.", format);
    report.check("Simulated driver", "What links libcuda is compiled against it.", sim::build);
    report.check("Lints", "All targets of all packages, every warning an error.", lints);
    report.check(
        "Documentation",
        "Builds without a warning: no broken link, nothing public without a page.",
        docs,
    );
    run_into(&mut report, CHANGE);
    report.suite(
        "Packages",
        "What would be published is tested and documented from its archives alone.",
        packages::run,
    );
    report.suite(
        "Oldest compiler",
        "Both packages compile with the Rust that they promise, which is installed for it.",
        guard::oldest_compiler,
    );
    report.close()
}

/// Runs the checks that [`run`] leaves out: other builds, other versions of the libraries, and every command at its
/// smallest size.
pub(crate) fn nightly(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("nightly", arguments)?;
    let mut report = Report::default();
    report.check("Simulated driver", "What links libcuda is compiled against it.", sim::build);
    report.check(
        "Lints of each feature",
        "A feature needs nothing that only another one enables.",
        each_feature,
    );
    report.suite(
        "Public items",
        "What users can name is what is recorded, where there is a nightly compiler.",
        public_items::suite,
    );
    run_into(&mut report, &[release::VERSIONS, release::PUBLICATION]);
    report.check(
        "Free-threaded Python",
        "The core compiles for a CPython without the lock, and for its stable interface.",
        free_threaded::check,
    );
    run_into(&mut report, LONGER);
    report.suite(
        "Oldest PyO3",
        "The Python tests again, with the oldest minor version that users may have.",
        pyo3::oldest,
    );
    report.suite(
        "Newest NumPy",
        "The Python tests again on Python 3.13, where it is installed, for which the newest NumPy has a wheel.",
        newest_numpy::suite,
    );
    report.suite(
        "Fuzzing",
        "Twenty seconds for each target; `cargo xtask fuzz` takes as many as it is given.",
        fuzz::suite,
    );
    for Command { name, run, runs, .. } in COMMANDS {
        if let Runs::Nightly(arguments, lacking) = runs {
            report.suite(name, "The command itself, at its smallest size.", |counts| {
                if let Some(why) = lacking() {
                    counts.skip(1, why);
                    return Ok(());
                }
                let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                run(&arguments)?;
                counts.passed = 1;
                Ok(())
            });
        }
    }
    report.close()
}

/// Checks the formatting of the sources.
fn format() -> Result<(), Failure> {
    command_step::run(&mut workspace::cargo(["fmt", "--all", "--check"]))
}

/// Runs the lints of the compiler and of clippy on everything.
fn lints() -> Result<(), Failure> {
    let mut all = workspace::cargo(["clippy", "--workspace", "--all-targets", "--locked"]);
    command_step::run(all.arg(workspace::plain_features()).args(["--", "-D", "warnings"]))?;
    // The core of somebody who enables nothing.
    let mut bare = workspace::cargo(["clippy", "--package=interop-core", "--locked"]);
    command_step::run(bare.args(["--", "-D", "warnings"]))
}

/// Runs the lints on the core with each feature alone. A feature must not depend on something that only another feature
/// enables.
fn each_feature() -> Result<(), Failure> {
    for part in workspace::FEATURES {
        let mut core =
            workspace::cargo(["clippy", "--package=interop-core", "--no-default-features", "--locked"]);
        command_step::run(core.arg(format!("--features={part}")).args(["--", "-D", "warnings"]))?;
    }
    let mut fuzz = workspace::cargo(["clippy", "--package=interop-fuzz", "--all-targets", "--locked"]);
    command_step::run(fuzz.args(["--features=python", "--", "-D", "warnings"]))
}

/// Builds the documentation of the workspace's packages.
fn docs() -> Result<(), Failure> {
    let mut docs = workspace::cargo(["doc", "--workspace", "--no-deps", "--locked"]);
    command_step::run(
        docs.arg(workspace::features_but(&["python", "stubs"])).env("RUSTDOCFLAGS", "-D warnings"),
    )
}
