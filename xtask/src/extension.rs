//! Builds the example extension with cargo and installs it for Python.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::failure::{Failure, no_arguments};
use crate::python::{Environment, Requirements};
use crate::{command_step, files, workspace};

/// `cargo xtask python`: prepares the environment with the extension, and prints how to use it.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("python", arguments)?;
    let environment = install(Requirements::Tests)?;
    let python = environment.python().get_program().to_string_lossy().into_owned();
    println!("\nReady. Try:\n    {python} -c 'import interop_demo; help(interop_demo)'");
    Ok(())
}

/// The file of the module.
const MODULE: &str = if cfg!(windows) { "interop_demo.pyd" } else { "interop_demo.abi3.so" };

/// The profile in which extensions are published.
const PUBLISHED: &str = "extension";

/// Builds the extension as it would be published, and installs it in an environment with these packages. For people and
/// for measurements.
pub(crate) fn install(requirements: Requirements) -> Result<Environment, Failure> {
    // The packages arrive while the compiler works. If they do not, the second call says why.
    drop(thread::spawn(move || Environment::prepare(requirements)));
    let library = compile()?;
    let environment = Environment::prepare(requirements)?;
    files::replace(&library, &environment.site_packages()?.join(MODULE))?;
    install_stubs(&environment)?;
    Ok(environment)
}

/// Builds the extension with debug assertions in a third of the time, and returns the folder of the module. Tests add it
/// to `PYTHONPATH`. What [`install`] has installed stays as it is.
pub(crate) fn for_tests(environment: &Environment) -> Result<PathBuf, Failure> {
    announce("with debug assertions");
    let target = workspace::target();
    // What the doc examples of the core use, so that both share one build.
    let mut cargo = library("dev");
    cargo.args(["--locked", "--features=interop-core/default", &workspace::plain_features()]);
    settings(cargo.arg("--target-dir").arg(&target))?;
    let modules = target.join("debug/modules");
    files::replace(&build_with(cargo, &target.join("debug"))?, &modules.join(MODULE))?;
    install_stubs(environment)?;
    Ok(modules)
}

/// Installs the stubs of the module and of the core. Type checkers look for them in the environment.
pub(crate) fn install_stubs(environment: &Environment) -> Result<(), Failure> {
    let (root, packages) = (workspace::root(), environment.site_packages()?);
    // For a module without a folder of its own, type checkers look for a stub package with this name.
    let stubs = packages.join("interop_demo-stubs/__init__.pyi");
    files::replace(&root.join("examples/py-extension/interop_demo.pyi"), &stubs)?;
    let core = "interop_core-stubs/__init__.pyi";
    files::replace(&root.join("interop-core/python").join(core), &packages.join(core))
}

/// Builds the extension as it would be published, and returns its path.
pub(crate) fn compile() -> Result<PathBuf, Failure> {
    announce("optimised");
    let (python, folder) = (Environment::base()?, workspace::target().join("extension"));
    compile_in(&workspace::root(), python.as_ref(), &folder, true)
}

fn announce(how: &str) {
    let why = format!("The Python module `interop_demo`, {how}, for any Python from 3.11 on.");
    command_step::announce("Example extension", &why);
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
    let mut cargo = library(PUBLISHED);
    cargo.current_dir(root).args(locked.then_some("--locked"));
    cargo.arg("--target-dir").arg(folder).env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", python);
    build_with(cargo, &folder.join(PUBLISHED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the settings of a profile, as cargo states them when it compiles this package, which has no dependencies.
    fn settings_of(profile: &str) -> String {
        let mut cargo = workspace::cargo(["check", "--locked", "--package=xtask", "--message-format=json"]);
        cargo.args(["--quiet", "--profile", profile, "--target-dir"]);
        let messages = command_step::ask(cargo.arg(workspace::target().join("profiles")));
        let messages = messages.expect("cargo checks this package");
        let (_, settings) = messages.split_once("\"profile\":{").expect("a message about this package");
        settings.split('}').next().unwrap_or_default().to_owned()
    }

    /// A build without optimisation is up to 800 times as slow as NumPy.
    #[test]
    fn people_and_measurements_get_an_optimised_build() {
        let settings = settings_of(PUBLISHED);
        for setting in ["\"opt_level\":\"3\"", "\"debug_assertions\":false", "\"overflow_checks\":false"] {
            assert!(settings.contains(setting), "{setting} is not in {settings}");
        }
        let (commands, _) =
            include_str!("extension.rs").split_once("/// The file of the module").expect("a constant");
        for source in [commands, include_str!("demo.rs"), include_str!("bench_python.rs")] {
            assert!(source.contains("install(Requirements::"), "another build is installed:\n{source}");
        }
    }
}
