//! The projects to start from, copied out and built by their own instructions with maturin, as a user would.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::python::Environment;
use crate::test_counts::Counts;
use crate::{command_step, files, sim, suites, workspace};

/// From `PyPI`.
const TOOLS: [&str; 3] = ["maturin==1.16.0", PYTEST, "numpy"];
const PYTEST: &str = "pytest==9.2.0";
const MYPY: &str = "mypy==2.4.1";

/// Builds both and runs their tests: the second on the simulated driver, the wheel of the first in a fresh environment.
pub(crate) fn run(counts: &mut Counts) -> Result<(), Failure> {
    let hello = Template::copy("hello-python")?;
    hello.develop()?;
    hello.test(sim::hidden, counts)?;
    hello.stubs()?;
    hello.wheel(counts)?;
    if cfg!(target_os = "linux") {
        sim::build()?;
        let hello = Template::copy("hello-cuda")?;
        hello.develop()?;
        hello.test(sim::on_path, counts)?;
    }
    Ok(())
}

/// A copy of one, with an environment of its own.
struct Template {
    folder: PathBuf,
}

impl Template {
    /// Copies it to where nothing around it helps, and lets it find the core, as its README says.
    fn copy(name: &str) -> Result<Self, Failure> {
        command_step::announce(name, "A copy under target/templates, built as its README says.");
        let folder = target().join(name);
        for part in ["src", "tests", "kernels"] {
            files::clear(&folder.join(part))?;
        }
        files::copy_all(&workspace::root().join("examples").join(name), &folder)?;
        let manifest = files::read(&folder.join("Cargo.toml"))?;
        let core = workspace::root().join("interop-core").display().to_string().replace('\\', "/");
        files::write(&folder.join("Cargo.toml"), manifest.replace("../../interop-core", &core))?;
        // The versions that are tested elsewhere, as far as they are the same packages.
        files::copy(&workspace::root().join("Cargo.lock"), &folder.join("Cargo.lock"))?;
        let template = Self { folder };
        template.environment("venv", &TOOLS)?;
        Ok(template)
    }

    /// An environment with these packages.
    fn environment(&self, name: &str, packages: &[&str]) -> Result<PathBuf, Failure> {
        let folder = target().join("environments").join(self.name()).join(name);
        command_step::run(Command::new(Environment::base()?).args(["-m", "venv", "--clear"]).arg(&folder))?;
        let mut pip = python(&folder);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
        command_step::run(pip.args(packages))?;
        Ok(folder)
    }

    fn name(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// A command of the environment that it is developed in.
    fn command(&self, module: &str) -> Command {
        let environment = target().join("environments").join(self.name()).join("venv");
        let mut command = python(&environment);
        command.args(["-m", module]).current_dir(&self.folder).env("VIRTUAL_ENV", &environment);
        // Both have most of what they build in common.
        command.env("CARGO_TARGET_DIR", target().join("target")).env_remove("CONDA_PREFIX");
        command
    }

    fn develop(&self) -> Result<(), Failure> {
        command_step::run(self.command("maturin").arg("develop"))
    }

    fn test(&self, with: fn(&mut Command) -> &mut Command, counts: &mut Counts) -> Result<(), Failure> {
        let mut pytest = self.command("pytest");
        pytest.env("PYTHONPATH", workspace::root().join("tests/templates"));
        counted(with(&mut pytest), counts)
    }

    /// The types that the wheel will have are those that maturin writes.
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

    /// The wheel, in an environment that has nothing else, and where the sources are not.
    fn wheel(&self, counts: &mut Counts) -> Result<(), Failure> {
        let wheels = self.folder.join("wheels");
        files::clear(&wheels)?;
        command_step::run(self.command("maturin").args(["build", "--release", "--out"]).arg(&wheels))?;
        let built = files::entries(&wheels)?;
        let [wheel] = built.as_slice() else {
            return Err(Failure::new(format!("{} wheels were built, and not one", built.len())));
        };
        if !wheel.to_string_lossy().contains("-cp310-abi3-") {
            return Err(Failure::new(format!("{} is not for every Python from 3.10 on", wheel.display())));
        }
        let fresh = self.environment("fresh", &[&wheel.to_string_lossy(), PYTEST, MYPY])?;
        let mut pytest = python(&fresh);
        counted(pytest.args(["-m", "pytest"]).current_dir(&wheels).arg(self.folder.join("tests")), counts)?;
        // What its types refuse is what Python would refuse, and they are those of the module.
        let callers = workspace::root().join("tests/templates/callers.py");
        command_step::run(
            python(&fresh)
                .args(["-m", "mypy", "--strict", "--no-incremental"])
                .arg(callers)
                .current_dir(&wheels),
        )?;
        let allowed = workspace::root().join("tests/templates/allowed.txt");
        command_step::run(
            python(&fresh)
                .args(["-m", "mypy.stubtest", "hello_python"])
                .arg("--allowlist")
                .arg(allowed)
                .current_dir(&wheels),
        )
    }
}

/// Runs pytest and adds up its tests; none at all is a failure.
fn counted(pytest: &mut Command, counts: &mut Counts) -> Result<(), Failure> {
    let before = counts.passed;
    suites::follow_pytest(pytest.args(["-p", "no:cacheprovider", "-ra", "--color=no"]), counts)?;
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

    /// A copy, because the project is to be complete where it is copied to.
    #[test]
    fn the_types_of_arrays_are_those_of_the_core() {
        let file = "interop_core-stubs/__init__.pyi";
        let of = |folder: &str| files::read(&workspace::root().join(folder).join(file)).expect("the stubs");
        assert_eq!(of("examples/hello-python"), of("interop-core/python"));
    }
}
