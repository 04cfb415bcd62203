//! Why a command stopped, and the exit code that tells it.

use std::fmt;
use std::process::ExitCode;

/// A command line that cannot be understood.
const USAGE: u8 = 2;
/// Work that was started and failed.
const FAILED: u8 = 1;

/// A command that did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to say, or `None` when a report has said it already and its closing line must stay the last one.
    message: Option<String>,
    code: u8,
}

impl Failure {
    /// Something failed; `message` says what, and what to do about it.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), code: FAILED }
    }

    /// The command line was wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), code: USAGE }
    }

    /// A report on the terminal has already told everything.
    pub(crate) fn reported() -> Self {
        Self { message: None, code: FAILED }
    }

    /// Tells the user and returns the exit code.
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

/// Refuses arguments after a command that takes none.
pub(crate) fn no_arguments(command: &str, arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(found) => Err(Failure::usage(format!("`{command}` takes no arguments, found `{found}`"))),
    }
}
