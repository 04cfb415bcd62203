//! Tests the template projects: copies them and builds them with maturin, as their READMEs describe; and generates projects
//! from them, whose workflows must pass.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::python::Environment;
use crate::test_counts::Counts;
use crate::tools::Tool;
use crate::{command_step, files, sim, test_runs, workflow, workspace};

/// Packages from `PyPI`.
const TOOLS: [&str; 3] = ["maturin==1.16.0", PYTEST, "numpy"];
const PYTEST: &str = "pytest==9.2.0";
const MYPY: &str = "mypy==2.4.1";

/// Of the later versions the oldest needs Rust 1.96.
const GENERATE: Tool = Tool { name: "cargo-generate", version: "0.23.9" };

/// Builds the templates and runs their tests: the CUDA template on the simulated driver, the wheel of the Python template
/// in a new environment. Then runs the workflow of a project that `cargo generate` makes of each.
pub(crate) fn run(counts: &mut Counts) -> Result<(), Failure> {
    let hello = Template::copy("hello-python")?;
    hello.develop()?;
    hello.test(sim::hidden, counts)?;
    hello.stubs()?;
    hello.wheel(counts)?;
    let hello = Template::copy_with("hello-functions", &[PYTEST, "numpy", "apache-tvm-ffi"])?;
    hello.kernels(counts)?;
    hello_functions()?;
    hello.test(sim::hidden, counts)?;
    if cfg!(target_os = "linux") {
        sim::build()?;
        let hello = Template::copy("hello-cuda")?;
        hello.kernels(counts)?;
        hello.develop()?;
        command_step::run(&mut workspace::cargo([
            "build",
            "--locked",
            "--package=interop-template-kernels",
        ]))?;
        hello.test(sim::on_path, counts)?;
        for (template, name) in
            [("hello-python", "waves"), ("hello-cuda", "cuda-waves"), ("hello-functions", "wave-functions")]
        {
            Template::generate(template, name)?.workflow(counts)?;
        }
    }
    Ok(())
}

/// Builds the CUDA template as a Python module and returns its path.
pub(crate) fn hello_cuda(python: &OsStr) -> Result<PathBuf, Failure> {
    let template = Template::copy_sources("hello-cuda")?;
    let mut cargo = workspace::cargo(["build", "--release"]);
    cargo.current_dir(&template.folder).arg("--target-dir").arg(target().join("target"));
    command_step::run(cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", python))?;
    Ok(target().join("target/release/libhello_cuda.so"))
}

/// Builds the template of functions, with the library in its Python package, and returns the folder.
pub(crate) fn hello_functions() -> Result<PathBuf, Failure> {
    let Template { folder } = Template::copy_sources("hello-functions")?;
    let mut cargo = workspace::cargo(["build", "--release"]);
    command_step::run(cargo.current_dir(&folder).arg("--target-dir").arg(target().join("target")))?;
    let library = format!("{DLL_PREFIX}hello_functions{DLL_SUFFIX}");
    files::copy(
        &target().join("target/release").join(&library),
        &folder.join("hello_functions").join(&library),
    )?;
    Ok(folder)
}

/// Copies a template as its README says, without an environment, and returns the folder.
pub(crate) fn sources(name: &str) -> Result<PathBuf, Failure> {
    Ok(Template::copy_sources(name)?.folder)
}

/// A copy of a template, with its own environment.
struct Template {
    folder: PathBuf,
}

impl Template {
    /// Copies a template out of the workspace, and points its dependencies to those here, as its README says.
    fn copy(name: &str) -> Result<Self, Failure> {
        Self::copy_with(name, &TOOLS)
    }

    /// As [`copy`](Self::copy), with these packages in its environment.
    fn copy_with(name: &str, packages: &[&str]) -> Result<Self, Failure> {
        let template = Self::copy_sources(name)?;
        template.environment("venv", packages)?;
        Ok(template)
    }

    /// As [`copy`](Self::copy), without an environment.
    fn copy_sources(name: &str) -> Result<Self, Failure> {
        command_step::announce(
            name,
            "A copy under target/templates, made a project by `examples/new_project.py`.",
        );
        let folder = target().join(name);
        files::clear(&folder)?;
        files::copy_all(&workspace::root().join("examples").join(name), &folder)?;
        let mut script = Command::new(Environment::base()?);
        script.arg(workspace::root().join("examples/new_project.py"));
        script.arg(name).arg(workspace::root()).current_dir(&folder);
        command_step::run(&mut script)?;
        Self { folder }.locked()
    }

    /// Makes a project of a template by `cargo generate`.
    fn generate(template: &str, name: &str) -> Result<Self, Failure> {
        GENERATE.install()?;
        let place = target().join("generated");
        files::clear(&place.join(name))?;
        files::make(&place)?;
        let mut generate = GENERATE.command();
        generate.args(["--silent", "--allow-commands", "--no-workspace", "--vcs=none", "--name", name]);
        generate.arg("--path").arg(workspace::root().join("examples")).arg(template);
        generate.arg("--define").arg(format!("interop={}", workspace::root().display()));
        command_step::run(generate.arg("--destination").arg(&place))?;
        Self { folder: place.join(name) }.locked()
    }

    /// Uses the versions that are tested elsewhere, for the packages that both have.
    fn locked(self) -> Result<Self, Failure> {
        files::copy(&workspace::root().join("Cargo.lock"), &self.folder.join("Cargo.lock"))?;
        Ok(self)
    }

    /// Runs the commands of the project's workflow in a new environment.
    fn workflow(&self, counts: &mut Counts) -> Result<(), Failure> {
        let environment = self.environment("workflow", &[])?;
        workflow::run(&self.folder, &environment, &target().join("target"), counts)
    }

    /// Creates an environment with these packages.
    fn environment(&self, name: &str, packages: &[&str]) -> Result<PathBuf, Failure> {
        let folder = target().join("environments").join(self.name()).join(name);
        command_step::run(Command::new(Environment::base()?).args(["-m", "venv", "--clear"]).arg(&folder))?;
        // Pip refuses an empty list.
        if !packages.is_empty() {
            let mut pip = python(&folder);
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--only-binary=:all:",
            ]);
            command_step::run(pip.args(packages))?;
        }
        Ok(folder)
    }

    fn name(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Returns a command that runs a Python module in the development environment.
    fn command(&self, module: &str) -> Command {
        let environment = target().join("environments").join(self.name()).join("venv");
        let mut command = python(&environment);
        command.args(["-m", module]).current_dir(&self.folder).env("VIRTUAL_ENV", &environment);
        // The templates share most of their dependencies.
        command.env("CARGO_TARGET_DIR", target().join("target")).env_remove("CONDA_PREFIX");
        command
    }

    fn develop(&self) -> Result<(), Failure> {
        command_step::run(self.command("maturin").arg("develop"))
    }

    fn test(&self, with: fn(&mut Command) -> &mut Command, counts: &mut Counts) -> Result<(), Failure> {
        let mut pytest = self.command("pytest");
        let helpers = ["tests/templates", "tests/python", "tests/conformance"]
            .map(|folder| workspace::root().join(folder));
        let folders = helpers.iter().chain([&self.folder]);
        pytest.env("PYTHONPATH", std::env::join_paths(folders).unwrap_or_default());
        pytest.env("TEMPLATE_KERNELS", workspace::target().join("debug/libinterop_template_kernels.so"));
        counted(with(&mut pytest), counts)
    }

    /// Runs the tests of the kernels on the CPU.
    fn kernels(&self, counts: &mut Counts) -> Result<(), Failure> {
        let mut cargo = workspace::cargo(["test", &format!("--package={}-kernels", self.name())]);
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", target().join("target"));
        test_runs::follow(&mut cargo, counts)
    }

    /// Checks that the type stubs in the wheel are those that maturin generates.
    fn stubs(&self) -> Result<(), Failure> {
        let stubs = self.folder.join("stubs");
        files::clear(&stubs)?;
        command_step::run(
            self.command("maturin").args(["generate-stubs", "--features", "stubs", "--out"]).arg(&stubs),
        )?;
        let present = self.folder.join("hello_python.pyi");
        if files::read(&stubs.join("hello_python/__init__.pyi"))? != files::read(&present)? {
            return Err(Failure::new("examples/hello-python/hello_python.pyi is not what maturin writes"));
        }
        Ok(())
    }

    /// Builds a wheel with these arguments of maturin, and returns it. Its name must have these tags, and on Linux
    /// `manylinux` after them.
    fn build(&self, arguments: &[&str], tags: &str) -> Result<PathBuf, Failure> {
        let wheels = self.folder.join("wheels");
        files::clear(&wheels)?;
        command_step::run(self.command("maturin").arg("build").args(arguments).arg("--out").arg(&wheels))?;
        let built = files::entries(&wheels)?;
        let [wheel] = built.as_slice() else {
            return Err(Failure::new(format!("{} wheels were built, and not one", built.len())));
        };
        let tags = if cfg!(target_os = "linux") { format!("{tags}manylinux_") } else { tags.to_owned() };
        if !wheel.to_string_lossy().contains(&tags) {
            return Err(Failure::new(format!("{} has not the tags `{tags}`", wheel.display())));
        }
        Ok(wheel.clone())
    }

    /// Builds the wheel and tests it in an environment that contains nothing else, away from the sources.
    fn wheel(&self, counts: &mut Counts) -> Result<(), Failure> {
        // For free-threaded Python, of which the interpreter need not be there. That one is not run.
        self.build(&["--features=pyo3/abi3t-py315", "--interpreter=3.15t"], "-cp315-abi3.abi3t-")?;
        let wheel = self.build(&["--release"], "-cp311-abi3-")?;
        let wheels = wheel.parent().unwrap_or(&self.folder);
        let fresh = self.environment("fresh", &[&wheel.to_string_lossy(), PYTEST, MYPY])?;
        let mut pytest = python(&fresh);
        counted(pytest.args(["-m", "pytest"]).current_dir(wheels).arg(self.folder.join("tests")), counts)?;
        // Checks that the stubs reject what Python rejects, and that they match the module.
        let callers = workspace::root().join("tests/templates/callers.py");
        command_step::run(
            python(&fresh)
                .args(["-m", "mypy", "--strict", "--no-incremental"])
                .arg(callers)
                .current_dir(wheels),
        )?;
        let allowed = workspace::root().join("tests/templates/allowed.txt");
        command_step::run(
            python(&fresh)
                .args(["-m", "mypy.stubtest", "hello_python"])
                .arg("--allowlist")
                .arg(allowed)
                .current_dir(wheels),
        )
    }
}

/// Runs pytest and sums up its tests. Fails if no test ran.
fn counted(pytest: &mut Command, counts: &mut Counts) -> Result<(), Failure> {
    let before = counts.passed;
    test_runs::follow_pytest(pytest.args(["-p", "no:cacheprovider", "-ra", "--color=no"]), counts)?;
    if counts.passed == before {
        return Err(Failure::new("no test ran"));
    }
    Ok(())
}

fn python(environment: &Path) -> Command {
    let mut python =
        Command::new(environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" }));
    python.env_remove("PYTHONHOME").env_remove("PYTHONPATH");
    python
}

fn target() -> PathBuf {
    workspace::target().join("templates")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stubs are copied, because a template, and a wheel of `interop_ipc`, must be complete on its own.
    #[test]
    fn the_types_of_arrays_are_those_of_the_core() {
        let file = "interop_core-stubs/__init__.pyi";
        let of = |folder: &str| files::read(&workspace::root().join(folder).join(file)).expect("the stubs");
        for folder in ["examples/hello-python", "interop-ipc/python"] {
            assert_eq!(of(folder), of("interop-core/python"), "{folder}");
        }
    }
}
