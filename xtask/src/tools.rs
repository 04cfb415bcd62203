//! Programs for the longer checks: cargo subcommands from crates.io, installed in `target/tools`, and the nightly
//! compiler.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::{env, iter};

use crate::failure::Failure;
use crate::{command_step, workspace};

/// A cargo subcommand.
pub(crate) struct Tool {
    /// The package, which is also the name of its program.
    pub(crate) name: &'static str,
    /// The tested version.
    pub(crate) version: &'static str,
}

impl Tool {
    /// Returns its path, in `target/tools` or on the path.
    fn found(&self) -> Option<PathBuf> {
        let folders = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
        let ours = iter::once(workspace::target().join("tools/bin"));
        let programs = ours.chain(folders).map(|folder| folder.join(self.name));
        programs
            .map(|program| program.with_extension(env::consts::EXE_EXTENSION))
            .find(|program| program.is_file())
    }

    /// Installs it, unless it exists.
    pub(crate) fn install(&self) -> Result<(), Failure> {
        if self.found().is_some() {
            return Ok(());
        }
        let Self { name, version } = self;
        command_step::announce(
            name,
            "From crates.io into target/tools, once; nothing else of this computer changes.",
        );
        let mut cargo = workspace::cargo(["install", "--locked", "--no-track", "--root"]);
        cargo.arg(workspace::target().join("tools")).arg(format!("{name}@{version}"));
        command_step::run(&mut cargo)
    }

    /// Returns a command that runs the tool as cargo would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.found().unwrap_or_else(|| self.name.into()));
        // Cargo passes a subcommand its own name.
        command.current_dir(workspace::root()).args(self.name.strip_prefix("cargo-"));
        command
    }
}

/// Returns the reason why the nightly compiler cannot be used, or `None`.
pub(crate) fn no_nightly() -> Option<String> {
    let version = command_step::ask(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]));
    version.is_none().then(|| "the nightly compiler is missing: `rustup toolchain install nightly`".into())
}

/// Fails if there is no nightly compiler.
pub(crate) fn need_nightly() -> Result<(), Failure> {
    no_nightly().map_or(Ok(()), |why| Err(Failure::new(why)))
}

/// Returns a command that runs a program of the nightly toolchain in the workspace's folder.
pub(crate) fn nightly(program: impl AsRef<OsStr>) -> Command {
    of_toolchain("nightly", program)
}

/// Returns a command that runs a program of another toolchain in the workspace's folder.
pub(crate) fn of_toolchain(toolchain: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain]).arg(program).current_dir(workspace::root());
    // The stable cargo that runs xtask has set these; the other toolchain would use them as the user's settings.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}
