//! Failures of commands, and their exit codes.

use std::fmt;
use std::process::ExitCode;

/// The command line was not understood.
const USAGE: u8 = 2;
/// The work was started and failed.
const FAILED: u8 = 1;

/// A command that did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The message, or `None` if a report has already been printed, whose last line must stay the last.
    message: Option<String>,
    code: u8,
}

impl Failure {
    /// Creates a failure. `message` states what failed and what to do about it.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), code: FAILED }
    }

    /// Creates a failure for a wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), code: USAGE }
    }

    /// Creates a failure that a report on the terminal has already described.
    pub(crate) fn reported() -> Self {
        Self { message: None, code: FAILED }
    }

    /// Prints the message and returns the exit code.
    pub(crate) fn exit(&self) -> ExitCode {
        if self.message.is_some() {
            eprintln!("xtask: {self}");
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or("see the report above"))
    }
}

/// Returns a failure if a command that takes no arguments received one.
pub(crate) fn no_arguments(command: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(found) => Err(Failure::usage(format!("`{command}` takes no arguments, found `{found}`"))),
    }
}
