//! Builds the Python modules of this repository with cargo and installs them for Python: the example extension, and `interop_ipc`.

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

/// A module of Python that a package builds.
struct Module {
    name: &'static str,
    package: &'static str,
    /// The name of the library that cargo builds.
    library: &'static str,
    stubs: &'static str,
}

const DEMO: Module = Module {
    name: "interop_demo",
    package: "interop-demo-extension",
    library: "interop_demo",
    stubs: "examples/py-extension/interop_demo.pyi",
};

const IPC: Module = Module {
    name: "interop_ipc",
    package: "interop-ipc-python",
    library: "interop_ipc_python",
    stubs: "interop-ipc/python/interop_ipc.pyi",
};

/// The modules that this system can build.
const MODULES: &[Module] = if cfg!(target_os = "linux") { &[DEMO, IPC] } else { &[DEMO] };

impl Module {
    /// The file that Python looks for.
    fn file(&self) -> String {
        format!("{}.{}", self.name, if cfg!(windows) { "pyd" } else { "abi3.so" })
    }

    /// Returns the command that builds the library in a profile.
    fn build(&self, profile: &str) -> Command {
        workspace::cargo(["rustc", "--lib", "--profile", profile, "--package", self.package])
    }

    /// Runs a command of [`build`](Self::build), and returns the path of what it wrote to `folder`.
    fn build_with(&self, mut cargo: Command, folder: &Path) -> Result<PathBuf, Failure> {
        if cfg!(target_os = "macos") {
            // Python's symbols are available only when Python has loaded the module.
            cargo.args(["--", "-C", "link-arg=-undefined", "-C", "link-arg=dynamic_lookup"]);
        }
        command_step::run(&mut cargo)?;
        Ok(folder.join(format!("{}{}{}", env::consts::DLL_PREFIX, self.library, env::consts::DLL_SUFFIX)))
    }

    /// Builds the optimised library of a workspace at `root` for an interpreter, in this folder, and returns its path.
    /// `locked` keeps the versions of its lock file.
    fn publish(&self, root: &Path, python: &OsStr, folder: &Path, locked: bool) -> Result<PathBuf, Failure> {
        let mut cargo = self.build(PUBLISHED);
        cargo.current_dir(root).args(locked.then_some("--locked"));
        cargo.arg("--target-dir").arg(folder);
        cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", python);
        self.build_with(cargo, &folder.join(PUBLISHED))
    }
}

/// The profile in which extensions are published.
const PUBLISHED: &str = "extension";

/// Builds the modules as they would be published, and installs them in an environment with these packages. For people and
/// for measurements.
pub(crate) fn install(requirements: Requirements) -> Result<Environment, Failure> {
    // The packages arrive while the compiler works. If they do not, the second call says why.
    drop(thread::spawn(move || Environment::prepare(requirements)));
    let libraries = compile()?;
    let environment = Environment::prepare(requirements)?;
    for (library, file) in libraries {
        files::replace(&library, &environment.site_packages()?.join(file))?;
    }
    install_stubs(&environment)?;
    Ok(environment)
}

/// Builds the modules with debug assertions in a third of the time, and returns their folder. Tests add it to `PYTHONPATH`.
/// What [`install`] has installed stays as it is.
pub(crate) fn for_tests(environment: &Environment) -> Result<PathBuf, Failure> {
    announce("with debug assertions");
    let target = workspace::target();
    let modules = target.join("debug/modules");
    for module in MODULES {
        let mut cargo = module.build("dev");
        // What the doc examples of the core use, so that all share one build.
        cargo.args(["--locked", "--features=interop-core/default", &workspace::plain_features()]);
        settings(cargo.arg("--target-dir").arg(&target))?;
        files::replace(&module.build_with(cargo, &target.join("debug"))?, &modules.join(module.file()))?;
    }
    install_stubs(environment)?;
    Ok(modules)
}

/// Installs the stubs of the modules and of the core. Type checkers look for them in the environment.
pub(crate) fn install_stubs(environment: &Environment) -> Result<(), Failure> {
    let (root, packages) = (workspace::root(), environment.site_packages()?);
    for module in MODULES {
        // For a module without a folder of its own, type checkers look for a stub package with this name.
        let stubs = packages.join(format!("{}-stubs/__init__.pyi", module.name));
        files::replace(&root.join(module.stubs), &stubs)?;
    }
    let core = "interop_core-stubs/__init__.pyi";
    files::replace(&root.join("interop-core/python").join(core), &packages.join(core))
}

/// Builds the modules as they would be published, and returns what was built and the names of their files.
pub(crate) fn compile() -> Result<Vec<(PathBuf, String)>, Failure> {
    announce("optimised");
    let (python, folder) = (Environment::base()?, folder());
    let build = |module: &Module| module.publish(&workspace::root(), python.as_ref(), &folder, true);
    MODULES.iter().map(|module| Ok((build(module)?, module.file()))).collect()
}

/// Builds the example extension of a workspace at `root` for an interpreter, in this folder. `locked` keeps the versions of its lock
/// file.
pub(crate) fn compile_in(
    root: &Path,
    python: &OsStr,
    folder: &Path,
    locked: bool,
) -> Result<PathBuf, Failure> {
    DEMO.publish(root, python, folder, locked)
}

/// The folder of the published builds.
fn folder() -> PathBuf {
    workspace::target().join("extension")
}

fn announce(how: &str) {
    let why = format!("The Python modules, {how}, for any Python from 3.11 on.");
    command_step::announce("Extension", &why);
}

/// The settings of PyO3 with which everything is built in `target/debug`. Others would build PyO3 and the core again.
pub(crate) fn settings(cargo: &mut Command) -> Result<(), Failure> {
    cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", Environment::base()?);
    Ok(())
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
            include_str!("extension.rs").split_once("/// A module of Python").expect("a constant");
        for source in [commands, include_str!("demo.rs"), include_str!("bench_python.rs")] {
            assert!(source.contains("install(Requirements::"), "another build is installed:\n{source}");
        }
    }
}
