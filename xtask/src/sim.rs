//! `cargo xtask sim`: builds the simulated CUDA driver and installs it as programs expect the real one.

use std::ffi::OsString;
#[cfg(unix)]
use std::os::unix::fs::symlink;
#[cfg(windows)]
use std::os::windows::fs::symlink_file as symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::failure::Failure;
use crate::{command_step, files, workspace};

/// The name that programs use at run time.
const NAME: &str = "libcuda.so.1";
/// The name that the linker and some programs use. It must be a link to the same file: a second file would be loaded as
/// a second driver.
const LINK: &str = "libcuda.so";
/// The module by which Python asks the driver.
const CLIENT: &str = "simulated_cuda.py";

/// Builds the simulated driver for manual use, and puts it into `target/sim/lib64`, or into the folder that is named.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let folder = match arguments {
        [] => folder(),
        // Relative to where the user is, not to the workspace.
        [folder] => std::path::absolute(folder).map_err(files::at(Path::new(folder)))?,
        _ => return Err(Failure::usage("write `cargo xtask sim`, or `cargo xtask sim FOLDER`".to_owned())),
    };
    command_step::run(&mut driver())?;
    install(&folder)?;
    println!(
        "    Programs use it with LD_LIBRARY_PATH={folder}. SIMULATED_CUDA_VERSION=12050 makes it a driver for CUDA 12.5.\n    \
         Python asks it by `import simulated_cuda`, with PYTHONPATH={folder}.",
        folder = folder.display()
    );
    Ok(())
}

/// Builds the simulated driver into `target/sim/lib64`, where `cust` finds it at compile time, and a library beside it that registers
/// the kernels of the example extension, for tests from Python.
pub(crate) fn build() -> Result<(), Failure> {
    command_step::announce(
        "Simulated CUDA driver",
        "In target/sim/lib64, so that programs for CUDA link and run without a GPU.",
    );
    let kernels = ["--package=interop-demo-extension-kernels", "--lib", "--example=simulated"];
    command_step::run(driver().args(kernels))?;
    // An invalid library file ends the search for a driver.
    for name in [NAME, LINK] {
        files::write(&nothing().join(name), "")?;
    }
    files::replace(&built("examples/libsimulated.so"), &folder().join("libinterop_demo_kernels.so"))?;
    install(&folder())
}

/// Returns the command that builds the simulated driver.
fn driver() -> Command {
    workspace::cargo(["build", "--package=simulated-cuda-driver", "--locked"])
}

/// Returns the path of a file that a debug build wrote. Cargo may use another folder than `target`.
fn built(file: &str) -> PathBuf {
    let folder = env::var_os("CARGO_TARGET_DIR");
    folder.map_or_else(workspace::target, |folder| workspace::root().join(folder)).join("debug").join(file)
}

/// Copies the driver that was built into a folder, under both of its names, and its Python client.
fn install(folder: &Path) -> Result<(), Failure> {
    let client = workspace::root().join("simulated-cuda-driver/python").join(CLIENT);
    files::replace(&client, &folder.join(CLIENT))?;
    files::replace(&built("libsimulated_cuda_driver.so"), &folder.join(NAME))?;
    let link = folder.join(LINK);
    if fs::read_link(&link).is_ok_and(|target| target == Path::new(NAME)) {
        return Ok(());
    }
    // Replaces whatever exists there.
    let _ = fs::remove_file(&link);
    symlink(NAME, &link).map_err(files::at(&link))
}

/// Makes a command load the simulated driver before any other.
pub(crate) fn on_path(command: &mut Command) -> &mut Command {
    first_on_path(command, vec![folder()])
}

/// Hides every driver from a command, including a real one of this machine.
///
/// Some tests use invented addresses and streams, which a real driver would reject. A test that needs the simulated
/// driver loads it by path.
pub(crate) fn hidden(command: &mut Command) -> &mut Command {
    first_on_path(command, vec![nothing()])
}

/// As [`hidden`], for a command that needs another library folder too.
pub(crate) fn hidden_beside<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    first_on_path(command, vec![nothing(), folder.to_path_buf()])
}

/// Returns the folder without a usable driver.
fn nothing() -> PathBuf {
    workspace::target().join("sim/none")
}

fn first_on_path(command: &mut Command, mut folders: Vec<PathBuf>) -> &mut Command {
    let first = folders[0].clone();
    folders.extend(env::split_paths(&env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
    // A folder with a colon in its name cannot be listed. Then only our folder is used.
    let path = env::join_paths(folders).unwrap_or_else(|_| OsString::from(first));
    command.env("LD_LIBRARY_PATH", path)
}

/// Returns the folder of the library.
fn folder() -> PathBuf {
    workspace::target().join("sim/lib64")
}
