//! `cargo xtask bench-python` and `cargo xtask soak-python`: measures exchanges and checks that they leak no memory.

use crate::failure::{Failure, no_arguments};
use crate::python::{Environment, Requirements};
use crate::{command_step, extension};

/// Prints the table of times with their limits: all rows, or those whose names contain these words.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let words = arguments.join(" ");
    script("Benchmarks", "One table, every column of a row in one run.", &["benches/python/bench.py", &words])
}

/// Runs ten million round trips. The memory of the process must not grow.
pub(crate) fn soak(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("soak-python", arguments)?;
    script(
        "Soak",
        "Ten million round trips, while the memory of the process is watched.",
        &["benches/python/soak.py"],
    )
}

/// Runs a Python script in the environment of the tests.
fn script(what: &str, why: &str, script: &[&str]) -> Result<(), Failure> {
    let environment = Environment::prepare(Requirements::Tests)?;
    extension::build(&environment)?;
    command_step::announce(what, why);
    command_step::run(environment.python().args(script))
}
