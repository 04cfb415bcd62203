//! `cargo xtask torture`: searches for lost and repeated releases, for longer than the suites do.

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::test_counts::Counts;
use crate::test_runs::pytest;
use crate::{extension, sim};

const TORTURE: [&str; 5] = [
    "tests/python/test_torture.py",
    "tests/python/test_interpreter_exit.py",
    "tests/python/test_faults.py",
    "tests/python/test_lifetime.py",
    "tests/python/test_soak.py",
];

/// Runs them for a minute, or for the seconds that are named.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
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
