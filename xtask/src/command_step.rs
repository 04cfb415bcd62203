//! Steps of a command: a step prints its purpose before it starts, shows its output immediately, and names the command
//! that failed.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::Failure;
use crate::workspace;

/// Prints the title and the purpose of the next step.
pub(crate) fn announce(what: &str, why: &str) {
    println!("\n==> {what}\n    {why}");
}

/// Runs a command that writes directly to the terminal.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    show(command);
    let status = command.status().map_err(|error| unstartable(command, &error))?;
    judge(command, status)
}

/// Runs a command, shows its output immediately, and passes each line to `read`. Its error stream goes directly to the
/// terminal.
pub(crate) fn follow(command: &mut Command, mut read: impl FnMut(&str)) -> Result<(), Failure> {
    lines(command, |line| {
        // Tests are counted even if the terminal has been closed.
        let _ = io::stdout().write_all(line).and_then(|()| io::stdout().flush());
        read(String::from_utf8_lossy(line).trim_end());
    })
}

/// As [`follow`], for output that is meant for programs and not shown.
pub(crate) fn read(command: &mut Command, mut read: impl FnMut(&str)) -> Result<(), Failure> {
    lines(command, |line| read(String::from_utf8_lossy(line).trim_end()))
}

fn lines(command: &mut Command, mut each: impl FnMut(&[u8])) -> Result<(), Failure> {
    show(command);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| unstartable(command, &error))?;
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        // Bytes, not strings: a test may print anything, and invalid UTF-8 must not end the run.
        while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
            each(&line);
            line.clear();
        }
    }
    let status = child.wait().map_err(|error| unstartable(command, &error))?;
    judge(command, status)
}

/// Runs a command quietly and returns its output, or `None` if it cannot be started or fails.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Prints the command as a user could type it.
fn show(command: &Command) {
    println!("    $ {}", spell(command));
    // The command's own output must come after this line, even if the output goes to a file.
    let _ = io::stdout().flush();
}

/// Returns success, or a failure that names the command and its exit status.
fn judge(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() { Ok(()) } else { Err(Failure::new(format!("`{}`: {status}", spell(command)))) }
}

/// Returns the failure of a command that could not be started.
fn unstartable(command: &Command, error: &io::Error) -> Failure {
    Failure::new(format!("`{}` could not be run: {error}", spell(command)))
}

/// Formats a command as a user could type it in the workspace's folder: its variables, a short program name, its
/// arguments.
fn spell(command: &Command) -> String {
    let root = workspace::root();
    let short = |word: &OsStr| {
        let path = Path::new(word);
        path.strip_prefix(&root).unwrap_or(path).display().to_string()
    };
    let variables = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={}", name.to_string_lossy(), quote(&short(value))))
    });
    let program = Path::new(command.get_program());
    // Users do not type the toolchain's full path to cargo.
    let program =
        if program.file_stem() == Some("cargo".as_ref()) { "cargo".into() } else { short(program.as_ref()) };
    let arguments = command.get_args().map(|argument| quote(&short(argument)));
    variables.chain([program]).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./,:+@\\".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_spelled_as_it_can_be_typed() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command
            .arg("doc")
            .arg("--no-deps")
            .arg(workspace::root().join("target"))
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(spell(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps target");
    }

    #[test]
    fn a_failure_names_the_command_and_how_it_ended() {
        let failure = run(workspace::cargo(["no-such-command"]).stderr(Stdio::null()))
            .expect_err("cargo has no such command");
        assert!(failure.to_string().contains("cargo no-such-command`: exit"), "{failure}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_a_failure_that_names_it() {
        let failure = run(&mut Command::new("no-such-program")).expect_err("there is no such program");
        assert!(failure.to_string().contains("`no-such-program` could not be run"), "{failure}");
    }

    #[test]
    fn lines_are_read_while_they_are_shown() {
        let mut lines = Vec::new();
        follow(&mut workspace::cargo(["--version"]), |line| lines.push(line.to_owned()))
            .expect("cargo tells its version");
        assert!(lines.iter().any(|line| line.starts_with("cargo ")), "{lines:?}");
    }
}
