//! Runs test programs and pytest, and counts their tests.

use std::process::Command;

use crate::command_step;
use crate::failure::Failure;
use crate::test_counts::Counts;

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

/// Runs pytest and sums up its tests.
pub(crate) fn pytest(python: &mut Command, what: &[&str], counts: &mut Counts) -> Result<(), Failure> {
    // No cache folder among the sources; a reason for every skipped test; a misspelt mark is an error; a deadlock ends
    // with the stack of every thread. A test that compiles C++ takes 30 s of a core, and 330 s if a dozen
    // programs share it.
    python.args(["-m", "pytest", "-p", "no:cacheprovider", "-ra", "--color=no", "--strict-markers"]);
    python.args(["-o", "faulthandler_timeout=600", "-o", "faulthandler_exit_on_timeout=true"]).args(what);
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
