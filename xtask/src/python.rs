//! A virtual environment for the demo and the Python tests, under `target/` and made when it is needed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::failure::Failure;
use crate::{command_step, files, sim, workspace};

/// The oldest Python that the stable interface of the extension and the pinned packages support.
const OLDEST: (u32, u32) = (3, 10);

/// Prints what must match between two interpreters for one to serve as the other, such as `3.11 cpython`; in words
/// that Python 2 knows too, to be told from a Python that does not run.
const PROBE: &str = "\
import platform, sys, sysconfig
free = sysconfig.get_config_var('Py_GIL_DISABLED')
kind = 'free-threaded' if free else platform.python_implementation().lower()
print('%d.%d %s' % (sys.version_info[0], sys.version_info[1], kind))";

/// The sets of packages, each pinned in a file.
#[derive(Clone, Copy)]
pub(crate) enum Requirements {
    /// What the demo needs.
    Demo,
    /// What the Python tests need, which includes what the demo needs.
    Tests,
    /// The compiler of the kernels.
    Kernels,
}

impl Requirements {
    /// The file with the pinned packages.
    fn file(self) -> PathBuf {
        workspace::root().join(match self {
            Self::Demo => "examples/py-extension/requirements.txt",
            Self::Tests => "tests/python/requirements.txt",
            Self::Kernels => "examples/kernels/requirements.txt",
        })
    }

    /// The file with packages for a folder of their own, and that folder: versions that cannot stand beside the others.
    fn apart(self) -> Option<(PathBuf, PathBuf)> {
        match self {
            Self::Demo | Self::Kernels => None,
            Self::Tests => Some((workspace::root().join("tests/python/oldest.txt"), folder().join("oldest"))),
        }
    }

    /// The file that tells what was installed.
    fn stamp(self) -> PathBuf {
        folder().join(match self {
            Self::Demo => "demo.installed",
            Self::Tests => "tests.installed",
            Self::Kernels => "kernels.installed",
        })
    }

    /// What has to be fetched for it at most, roughly.
    fn megabytes(self) -> u32 {
        match self {
            Self::Demo | Self::Tests => 400,
            Self::Kernels => 23,
        }
    }
}

/// A virtual environment that is ready for use.
pub(crate) struct Environment {
    interpreter: PathBuf,
}

impl Environment {
    /// Makes the environment, unless it is there, and installs the packages, unless exactly these are.
    pub(crate) fn prepare(requirements: Requirements) -> Result<Self, Failure> {
        let base = Interpreter::find()?;
        let environment = Self {
            interpreter: folder().join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" }),
        };
        if environment.probe().as_deref() != Some(base.probe.as_str()) {
            environment.create(&base)?;
        }
        environment.install(requirements, &base)?;
        Ok(environment)
    }

    /// The Python that environments are made from.
    pub(crate) fn base() -> Result<String, Failure> {
        Interpreter::find().map(|base| base.program)
    }

    /// The environment's interpreter, in the workspace's folder and free of what the caller's environment would add.
    pub(crate) fn python(&self) -> Command {
        let mut python = Command::new(&self.interpreter);
        python.current_dir(workspace::root()).env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        // Nothing is written beside the sources, and output appears when it is printed.
        python.args(["-B", "-u"]);
        python
    }

    /// The folder for compiled modules.
    pub(crate) fn site_packages(&self) -> Result<PathBuf, Failure> {
        let ask = "import sysconfig; print(sysconfig.get_path('platlib'))";
        let folder = command_step::ask(self.python().args(["-c", ask]));
        folder.map(PathBuf::from).ok_or_else(|| broken("does not tell where its modules are"))
    }

    /// What the interpreter is, or `None` when it does not work, or has no pip because its creation was interrupted.
    fn probe(&self) -> Option<String> {
        command_step::ask(self.python().args(["-c", &format!("import pip\n{PROBE}")]))
    }

    /// Makes the environment, over whatever is left of an earlier one.
    fn create(&self, base: &Interpreter) -> Result<(), Failure> {
        command_step::announce(
            "Virtual environment",
            &format!(
                "In target/venv, with {} as its Python: nothing outside this folder is changed.",
                base.program
            ),
        );
        if command_step::ask(Command::new(&base.program).args(["-c", "import venv, ensurepip"])).is_none() {
            return Err(Failure::new(format!(
                "{} cannot make virtual environments, because its modules `venv` and `ensurepip` are not installed. On \
                 Debian and Ubuntu the package `python3-venv` has them; or choose another Python with PYTHON=<path>",
                base.program
            )));
        }
        command_step::run(
            Command::new(&base.program)
                .args(["-m", "venv", "--clear"])
                .arg(folder())
                .env_remove("PYTHONHOME"),
        )?;
        match self.probe() {
            Some(_) => Ok(()),
            None => Err(broken("was made but does not work")),
        }
    }

    /// Installs the packages of a requirements file, unless the stamp says that exactly these are installed.
    fn install(&self, requirements: Requirements, base: &Interpreter) -> Result<(), Failure> {
        let file = requirements.file();
        let mut wanted = format!("{}\n{}", base.probe, with_included(&file)?);
        if let Some((file, _)) = requirements.apart() {
            wanted.push_str(&with_included(&file)?);
        }
        let stamp = requirements.stamp();
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        let megabytes = requirements.megabytes();
        command_step::announce(
            "Python packages",
            &format!("From PyPI, in fixed versions; up to {megabytes} MB, the first time only."),
        );
        self.pip(&file, &[], base)?;
        if let Some((file, folder)) = requirements.apart() {
            let folder = folder.as_os_str();
            self.pip(
                &file,
                &["--upgrade".as_ref(), "--no-warn-conflicts".as_ref(), "--target".as_ref(), folder],
                base,
            )?;
        }
        files::write(&stamp, wanted)
    }

    /// Installs the packages of one file.
    fn pip(&self, file: &Path, options: &[&OsStr], base: &Interpreter) -> Result<(), Failure> {
        let mut pip = self.python();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(options);
        // A package without a wheel for this Python would be compiled, which takes an hour and then fails.
        pip.args(["--only-binary", ":all:", "--requirement"]).arg(file);
        command_step::run(&mut pip).map_err(|failure| {
            Failure::new(format!(
                "{failure}: the packages could not be installed. If pip could not reach PyPI, connect and run this \
                 again; if it found no matching version, choose another Python with PYTHON=<path> (this one is \
                 `{}`, {})",
                base.program, base.probe
            ))
        })
    }
}

/// The Python that the virtual environment is made from.
struct Interpreter {
    /// How to start it.
    program: String,
    /// What [`PROBE`] printed.
    probe: String,
}

impl Interpreter {
    /// The one named by the variable `PYTHON`, else the first suitable one on the path.
    fn find() -> Result<Self, Failure> {
        let candidates = match env::var("PYTHON") {
            Ok(chosen) if !chosen.is_empty() => vec![chosen],
            _ => vec!["python3".to_owned(), "python".to_owned()],
        };
        let mut refused = Vec::new();
        for program in candidates {
            let probe = command_step::ask(Command::new(&program).args(["-c", PROBE]));
            match unsuitable(probe.as_deref()) {
                None => return Ok(Self { program, probe: probe.unwrap_or_default() }),
                Some(why) => refused.push(format!("`{program}` {why}")),
            }
        }
        let (major, minor) = OLDEST;
        Err(Failure::new(format!(
            "Python {major}.{minor} or newer is needed, and none was found: {}. Install it, or name one with \
             PYTHON=<path>",
            refused.join(", ")
        )))
    }
}

/// The shared library of a Python, to be embedded in a program.
pub(crate) struct Library {
    program: String,
    home: String,
    folder: PathBuf,
}

impl Library {
    /// Prints the interpreter, its home, and its library, where there is one to share.
    const PROBE: &str = "\
import sys, sysconfig
value = sysconfig.get_config_var
print(sys.executable, sys.base_prefix, value('LIBDIR') if value('Py_ENABLE_SHARED') else '', value('LDLIBRARY'), sep='\\n')";

    /// That of the Python that [`Environment`] would use.
    pub(crate) fn find() -> Result<Self, Failure> {
        let Interpreter { program, .. } = Interpreter::find()?;
        let said = command_step::ask(Command::new(&program).args(["-c", Self::PROBE])).unwrap_or_default();
        if let [program, home, folder, library] = said.lines().collect::<Vec<_>>()[..] {
            if !folder.is_empty() && Path::new(folder).join(library).is_file() {
                return Ok(Self { program: program.into(), home: home.into(), folder: folder.into() });
            }
        }
        Err(Failure::new(format!(
            "`{program}` has no shared library to embed; on Debian and Ubuntu it is in `libpython3-dev`"
        )))
    }

    /// Has a program that a command builds and runs embed it, with no driver in sight.
    pub(crate) fn embed(&self, command: &mut Command) {
        command.env("PYO3_PYTHON", &self.program).env("PYTHONHOME", &self.home);
        sim::hidden_beside(command, &self.folder);
    }
}

/// Why an interpreter cannot be used, from what [`PROBE`] printed; `None` when it can.
fn unsuitable(probe: Option<&str>) -> Option<String> {
    let Some(probe) = probe else { return Some("does not run".to_owned()) };
    let version = |version: &str| {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let (number, kind) = probe.split_once(' ').unwrap_or((probe, "nameless"));
    match (version(number), kind) {
        (None, _) => Some(format!("says `{probe}`")),
        (Some(version), _) if version < OLDEST => Some(format!("is Python {number}")),
        (Some(_), "cpython") => None,
        // The stable interface that the extension is built for is the one of CPython with the lock.
        (Some(_), kind) => Some(format!("is a {kind} build")),
    }
}

/// The folder of the virtual environment.
fn folder() -> PathBuf {
    workspace::target().join("venv")
}

/// The environment is in a state that only a new one mends.
fn broken(what: &str) -> Failure {
    Failure::new(format!("the virtual environment {what}; remove the folder target/venv and run this again"))
}

/// A requirements file with the files that it includes, so that a change in any of them shows.
fn with_included(file: &Path) -> Result<String, Failure> {
    let mut text = files::read(file)?;
    let included: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("-r ")).map(str::to_owned).collect();
    for name in included {
        text.push_str(&with_included(&file.with_file_name(name))?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suitable_interpreters_are_told_from_others() {
        assert_eq!(unsuitable(Some("3.10 cpython")), None);
        assert_eq!(unsuitable(Some("3.14 cpython")), None);
        assert_eq!(unsuitable(Some("3.9 cpython")).as_deref(), Some("is Python 3.9"));
        assert_eq!(unsuitable(Some("2.7 cpython")).as_deref(), Some("is Python 2.7"));
        assert_eq!(unsuitable(Some("3.14 free-threaded")).as_deref(), Some("is a free-threaded build"));
        assert_eq!(unsuitable(Some("3.11 pypy")).as_deref(), Some("is a pypy build"));
        assert_eq!(unsuitable(None).as_deref(), Some("does not run"));
        assert_eq!(unsuitable(Some("hello")).as_deref(), Some("says `hello`"));
    }

    #[test]
    fn a_requirements_file_is_read_with_the_files_it_includes() {
        let text = with_included(&Requirements::Tests.file()).expect("the file is part of the repository");
        assert!(text.contains("pytest==") && text.contains("jax=="), "{text}");
    }

    #[test]
    fn every_package_is_pinned_to_one_version() {
        for requirements in [Requirements::Tests, Requirements::Kernels] {
            let text = with_included(&requirements.file()).expect("the file is part of the repository");
            let packages = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '-']));
            for line in packages {
                assert!(line.contains("=="), "{line:?} names no exact version");
            }
        }
    }
}
