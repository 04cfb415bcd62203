//! Builds the example extension with cargo and installs it for Python.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, no_arguments};
use crate::python::{Environment, Requirements};
use crate::{command_step, files, workspace};

/// How the extension is built.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// In a third of the time, with debug assertions, for tests.
    Quick,
    /// As extensions are published, for measurements.
    Optimised,
}

/// `cargo xtask python`: prepares the environment with the extension, and prints how to use it.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("python", arguments)?;
    let environment = Environment::prepare(Requirements::Tests)?;
    build(&environment, Build::Optimised)?;
    let python = environment.python().get_program().to_string_lossy().into_owned();
    println!("\nReady. Try:\n    {python} -c 'import interop_demo; help(interop_demo)'");
    Ok(())
}

/// Builds the extension and copies it into the environment.
pub(crate) fn build(environment: &Environment, how: Build) -> Result<(), Failure> {
    let module = if cfg!(windows) { "interop_demo.pyd" } else { "interop_demo.abi3.so" };
    let packages = environment.site_packages()?;
    files::replace(&compile(environment, how)?, &packages.join(module))?;
    // For a module without a folder of its own, type checkers look for a stub package with this name.
    let stubs = packages.join("interop_demo-stubs/__init__.pyi");
    files::replace(&workspace::root().join("examples/py-extension/interop_demo.pyi"), &stubs)?;
    // These stubs refer to the types of the core.
    let core = "interop_core-stubs/__init__.pyi";
    files::replace(&workspace::root().join("interop-core/python").join(core), &packages.join(core))
}

/// Builds the extension and returns its path.
pub(crate) fn compile(environment: &Environment, how: Build) -> Result<PathBuf, Failure> {
    let why = match how {
        Build::Quick => {
            "The Python module `interop_demo`, with debug assertions, for any Python from 3.11 on."
        }
        Build::Optimised => "The Python module `interop_demo`, optimised, for any Python from 3.11 on.",
    };
    command_step::announce("Example extension", why);
    let (root, target) = (workspace::root(), workspace::target());
    match how {
        Build::Optimised => {
            compile_in(&root, environment.python().get_program(), &target.join("extension"), true)
        }
        Build::Quick => {
            // What the doc examples of the core use, so that both share one build.
            let mut cargo = library("dev");
            cargo.args(["--locked", "--features=interop-core/default", &workspace::plain_features()]);
            settings(cargo.arg("--target-dir").arg(&target))?;
            build_with(cargo, &target.join("debug"))
        }
    }
}

/// The settings of PyO3 with which everything is built in `target/debug`. Others would build PyO3 and the core again.
pub(crate) fn settings(cargo: &mut Command) -> Result<(), Failure> {
    cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", Environment::base()?);
    Ok(())
}

/// Returns the command that builds the extension's library in a profile.
fn library(profile: &str) -> Command {
    workspace::cargo(["rustc", "--package=interop-demo-extension", "--lib", "--profile", profile])
}

/// Runs a command of [`library`], and returns the path of what it wrote to `folder`.
fn build_with(mut cargo: Command, folder: &Path) -> Result<PathBuf, Failure> {
    if cfg!(target_os = "macos") {
        // Python's symbols are available only when Python has loaded the module.
        cargo.args(["--", "-C", "link-arg=-undefined", "-C", "link-arg=dynamic_lookup"]);
    }
    command_step::run(&mut cargo)?;
    let library = format!("{}interop_demo{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    Ok(folder.join(library))
}

/// Builds the optimised extension of a workspace at `root` for an interpreter, in this folder, and returns its path.
/// `locked` keeps the versions of its lock file.
pub(crate) fn compile_in(
    root: &Path,
    python: &OsStr,
    folder: &Path,
    locked: bool,
) -> Result<PathBuf, Failure> {
    let mut cargo = library("extension");
    cargo.current_dir(root).args(locked.then_some("--locked"));
    cargo.arg("--target-dir").arg(folder).env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", python);
    build_with(cargo, &folder.join("extension"))
}
