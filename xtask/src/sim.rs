//! `cargo xtask sim`: the simulated CUDA driver, laid out as programs look for the real one.

use std::ffi::OsString;
#[cfg(unix)]
use std::os::unix::fs::symlink;
#[cfg(windows)]
use std::os::windows::fs::symlink_file as symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::failure::{Failure, no_arguments};
use crate::{command_step, files, workspace};

/// What programs that run call the library.
const NAME: &str = "libcuda.so.1";
/// What the linker calls it, and some programs. It must lead to the same file: a second one would be loaded as a second
/// driver.
const LINK: &str = "libcuda.so";

/// Builds the simulated driver, to try things by hand.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("sim", arguments)?;
    build()?;
    println!("    Programs use it with LD_LIBRARY_PATH=target/sim/lib64");
    Ok(())
}

/// Builds the simulated driver and puts it into `target/sim/lib64`, where `cust` finds it when it is compiled.
pub(crate) fn build() -> Result<(), Failure> {
    command_step::announce(
        "Simulated CUDA driver",
        "In target/sim/lib64, so that programs for CUDA link and run without a GPU.",
    );
    command_step::run(&mut workspace::cargo(["build", "--package=interop-sim-driver", "--locked"]))?;
    // The folder that cargo builds into may be another than `target`.
    let built = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(workspace::target, |folder| workspace::root().join(folder));
    let library = built.join("debug/libinterop_sim_driver.so");
    let folder = folder();
    files::replace(&library, &folder.join(NAME))?;
    // A file that is no library ends the search.
    for name in [NAME, LINK] {
        files::write(&nothing().join(name), "")?;
    }
    let link = folder.join(LINK);
    if fs::read_link(&link).is_ok_and(|target| target == Path::new(NAME)) {
        return Ok(());
    }
    // Whatever is there instead is replaced.
    let _ = fs::remove_file(&link);
    symlink(NAME, &link).map_err(files::at(&link))
}

/// Lets a command load the simulated driver, before any other.
pub(crate) fn on_path(command: &mut Command) -> &mut Command {
    first_on_path(command, vec![folder()])
}

/// Lets a command find no driver, not even that of this machine: arrays that tests make up are no real memory, and their
/// streams no real streams. A test that wants the simulated one loads it by its place.
pub(crate) fn hidden(command: &mut Command) -> &mut Command {
    first_on_path(command, vec![nothing()])
}

/// As [`hidden`], for a command that has to find another library too.
pub(crate) fn hidden_beside<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    first_on_path(command, vec![nothing(), folder.to_path_buf()])
}

/// Where no driver is.
fn nothing() -> PathBuf {
    workspace::target().join("sim/none")
}

fn first_on_path(command: &mut Command, mut folders: Vec<PathBuf>) -> &mut Command {
    let first = folders[0].clone();
    folders.extend(env::split_paths(&env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    // A folder with a colon in its name cannot be listed; then only ours is.
    let path = env::join_paths(folders).unwrap_or_else(|_| OsString::from(first));
    command.env("LD_LIBRARY_PATH", path)
}

/// Where the library is put.
fn folder() -> PathBuf {
    workspace::target().join("sim/lib64")
}
