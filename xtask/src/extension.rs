//! Builds the example extension with cargo and installs it for Python.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, no_arguments};
use crate::python::{Environment, Requirements};
use crate::{command_step, files, workspace};

/// `cargo xtask python`: prepares the environment with the extension, and prints how to use it.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("python", arguments)?;
    let environment = Environment::prepare(Requirements::Tests)?;
    build(&environment)?;
    let python = environment.python().get_program().to_string_lossy().into_owned();
    println!("\nReady. Try:\n    {python} -c 'import interop_demo; help(interop_demo)'");
    Ok(())
}

/// Builds the extension and copies it into the environment.
pub(crate) fn build(environment: &Environment) -> Result<(), Failure> {
    let module = if cfg!(windows) { "interop_demo.pyd" } else { "interop_demo.abi3.so" };
    let packages = environment.site_packages()?;
    files::replace(&compile(environment)?, &packages.join(module))?;
    // For a module without a folder of its own, type checkers look for a stub package with this name.
    let stubs = packages.join("interop_demo-stubs/__init__.pyi");
    files::replace(&workspace::root().join("examples/py-extension/interop_demo.pyi"), &stubs)?;
    // These stubs refer to the types of the core.
    let core = "interop_core-stubs/__init__.pyi";
    files::replace(&workspace::root().join("interop-core/python").join(core), &packages.join(core))
}

/// Builds the extension and returns its path.
pub(crate) fn compile(environment: &Environment) -> Result<PathBuf, Failure> {
    command_step::announce(
        "Example extension",
        "The Python module `interop_demo`, optimised, for any Python from 3.11 on.",
    );
    // A separate build folder: an extension module uses other PyO3 settings than tests, and each build would invalidate
    // the other's.
    compile_for(environment.python().get_program(), &workspace::target().join("extension"))
}

/// Builds the extension for an interpreter in this folder, and returns its path.
pub(crate) fn compile_for(python: &OsStr, folder: &Path) -> Result<PathBuf, Failure> {
    compile_in(&workspace::root(), python, folder, true)
}

/// As [`compile_for`], for a workspace at `root`. `locked` keeps the versions of its lock file.
pub(crate) fn compile_in(
    root: &Path,
    python: &OsStr,
    folder: &Path,
    locked: bool,
) -> Result<PathBuf, Failure> {
    let mut cargo =
        workspace::cargo(["rustc", "--profile=extension", "--package=interop-demo-extension", "--lib"]);
    cargo.current_dir(root).args(locked.then_some("--locked"));
    cargo.arg("--target-dir").arg(folder).env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", python);
    if cfg!(target_os = "macos") {
        // Python's symbols are available only when Python has loaded the module.
        cargo.args(["--", "-C", "link-arg=-undefined", "-C", "link-arg=dynamic_lookup"]);
    }
    command_step::run(&mut cargo)?;
    let library = format!("{}interop_demo{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    Ok(folder.join("extension").join(library))
}
