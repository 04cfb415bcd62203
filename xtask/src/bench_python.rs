//! `cargo xtask bench-python` and `cargo xtask soak-python`: measures exchanges and checks that they leak no memory.

use crate::failure::Failure;
use crate::python::Requirements;
use crate::{command_step, extension};

/// Prints the table of times with their limits: all rows, or those whose names contain these words. `--once` measures
/// each row once and holds it to no limit. Without words, or by the word `processes`, the table of arrays to another process
/// follows.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (options, words): (Vec<_>, Vec<_>) =
        arguments.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    let (exchanges, processes) = ("tests/benches/python/bench.py", "tests/benches/python/processes.py");
    let scripts = match *words {
        // Memory files are those of Linux.
        [] if cfg!(target_os = "linux") => vec![exchanges, processes],
        ["processes"] => vec![processes],
        _ => vec![exchanges],
    };
    let words = words.join(" ");
    scripts.into_iter().try_for_each(|script| {
        let script = [&[script][..], &options, &[&words]].concat();
        run_script("Benchmarks", "One table, every column of a row in one run.", &script)
    })
}

/// Returns why the memory of a process cannot be watched on this system, or `None`.
pub(crate) fn no_proc() -> Option<String> {
    (!cfg!(target_os = "linux"))
        .then(|| "there is no /proc, from which the memory of a process is read".into())
}

/// Runs ten million round trips, or as many millions as are given. The memory of the process must not grow.
pub(crate) fn soak(arguments: &[String]) -> Result<(), Failure> {
    let mut script = vec!["tests/benches/python/soak.py"];
    script.extend(arguments.iter().map(String::as_str));
    run_script("Soak", "Millions of round trips, while the memory of the process is watched.", &script)
}

/// Runs a Python script in the environment of the tests.
fn run_script(what: &str, why: &str, script: &[&str]) -> Result<(), Failure> {
    let environment = extension::install(Requirements::Tests)?;
    command_step::announce(what, why);
    command_step::run(environment.python().args(script))
}
