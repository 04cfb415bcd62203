//! A virtual environment for the demo and the Python tests, created under `target/` when it is needed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use crate::failure::Failure;
use crate::{command_step, files, sim, workspace};

/// The oldest Python that the extension's stable ABI and the pinned packages support.
const OLDEST: (u32, u32) = (3, 11);

/// Prints the properties in which two interpreters must match to be interchangeable, such as `3.11 cpython`.
///
/// It also runs on Python 2, so that an old Python can be distinguished from one that does not run.
const PROBE: &str = "\
import platform, sys, sysconfig
free = sysconfig.get_config_var('Py_GIL_DISABLED')
kind = 'free-threaded' if free else platform.python_implementation().lower()
print('%d.%d %s' % (sys.version_info[0], sys.version_info[1], kind))";

/// A set of packages, each pinned in a file.
#[derive(Clone, Copy)]
pub(crate) enum Requirements {
    /// The packages of the demo.
    Demo,
    /// The packages of the Python tests, which include those of the demo.
    Tests,
    /// The compiler of the kernels.
    Kernels,
    /// The headers and the libclang with which `cuda-core` is compiled.
    CudaCore,
    /// The packages of the tests of functions, which include those of the Python tests.
    Functions,
}

impl Requirements {
    /// Returns the file with the pinned packages.
    fn file(self) -> PathBuf {
        workspace::root().join(match self {
            Self::Demo => "examples/py-extension/requirements.txt",
            Self::Tests | Self::Functions => "tests/python/requirements.txt",
            Self::Kernels => "examples/kernels/requirements.txt",
            Self::CudaCore => "tests/cuda-core/requirements.txt",
        })
    }

    /// Returns the files with packages that need a separate folder each, and those folders: versions that conflict with
    /// the others, and packages that other tests do not expect. They are installed without their dependencies.
    pub(crate) fn apart(self) -> Vec<(PathBuf, PathBuf)> {
        let versions: &[&str] = match self {
            Self::Demo | Self::Kernels | Self::CudaCore => &[],
            Self::Tests => &["oldest", "1.26", "2.0"],
            Self::Functions => {
                let place = |(file, name)| {
                    (workspace::root().join("tests/functions").join(file), folder().join(name))
                };
                let files = [("requirements.txt", "functions"), ("oldest_torch.txt", "oldest-torch")];
                return files.into_iter().map(place).collect();
            }
        };
        let place = |version: &&str| {
            let file = workspace::root().join(format!("tests/python/numpy/{version}.txt"));
            (file, folder().join("numpy").join(version))
        };
        versions.iter().map(place).collect()
    }

    /// Returns the file that records what was installed.
    fn stamp(self) -> PathBuf {
        folder().join(match self {
            Self::Demo => "demo.installed",
            Self::Tests => "tests.installed",
            Self::Kernels => "kernels.installed",
            Self::CudaCore => "cuda-core.installed",
            Self::Functions => "functions.installed",
        })
    }

    /// The approximate maximum download size.
    fn megabytes(self) -> u32 {
        match self {
            Self::Demo | Self::Tests => 400,
            Self::Kernels => 23,
            Self::CudaCore => 105,
            Self::Functions => 1500,
        }
    }
}

/// Held by the thread that prepares the environment. Another one that needs it waits.
static PREPARING: Mutex<()> = Mutex::new(());

/// A virtual environment that is ready for use.
pub(crate) struct Environment {
    interpreter: PathBuf,
}

impl Environment {
    /// Creates the environment and installs the packages, unless this has already been done.
    pub(crate) fn prepare(requirements: Requirements) -> Result<Self, Failure> {
        let _turn = PREPARING.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Returns the Python that environments are created from.
    pub(crate) fn base() -> Result<String, Failure> {
        Interpreter::find().map(|base| base.program)
    }

    /// Returns a command that runs the environment's interpreter in the workspace's folder, without the caller's Python
    /// variables.
    pub(crate) fn python(&self) -> Command {
        let mut python = Command::new(&self.interpreter);
        python.current_dir(workspace::root()).env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        // No bytecode is written next to the sources, and output appears immediately.
        python.args(["-B", "-u"]);
        python
    }

    /// Returns the folder for compiled modules.
    pub(crate) fn site_packages(&self) -> Result<PathBuf, Failure> {
        let ask = "import sysconfig; print(sysconfig.get_path('platlib'))";
        let folder = command_step::ask(self.python().args(["-c", ask]));
        folder.map(PathBuf::from).ok_or_else(|| broken("does not tell where its modules are"))
    }

    /// Returns the interpreter's properties, or `None` if it does not work or has no pip because its creation was
    /// interrupted.
    fn probe(&self) -> Option<String> {
        command_step::ask(self.python().args(["-c", &format!("import pip\n{PROBE}")]))
    }

    /// Creates the environment, replacing the remains of an earlier one.
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

    /// Installs the packages of a requirements file, unless the stamp states that exactly these are installed.
    fn install(&self, requirements: Requirements, base: &Interpreter) -> Result<(), Failure> {
        let file = requirements.file();
        let mut wanted = format!("{}\n{}", base.probe, with_included(&file)?);
        for (file, _) in requirements.apart() {
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
        for (file, folder) in requirements.apart() {
            let folder = folder.as_os_str();
            self.pip(
                &file,
                &["--upgrade".as_ref(), "--no-deps".as_ref(), "--target".as_ref(), folder],
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

/// The Python that the virtual environment is created from.
struct Interpreter {
    /// The command that starts it.
    program: String,
    /// The output of [`PROBE`].
    probe: String,
}

impl Interpreter {
    /// Finds the interpreter in the variable `PYTHON`, or else the first suitable one on the path.
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

/// The shared library of a Python, for embedding in a program.
pub(crate) struct Library {
    program: String,
    home: String,
    folder: PathBuf,
    file: PathBuf,
}

impl Library {
    /// Prints the interpreter, its home, and its shared library if it has one.
    const PROBE: &str = "\
import sys, sysconfig
value = sysconfig.get_config_var
print(sys.executable, sys.base_prefix, value('LIBDIR') if value('Py_ENABLE_SHARED') else '', value('LDLIBRARY'), sep='\\n')";

    /// Finds the library of the Python that [`Environment`] uses.
    pub(crate) fn find() -> Result<Self, Failure> {
        let Interpreter { program, .. } = Interpreter::find()?;
        let said = command_step::ask(Command::new(&program).args(["-c", Self::PROBE])).unwrap_or_default();
        if let [program, home, folder, library] = said.lines().collect::<Vec<_>>()[..] {
            let file = Path::new(folder).join(library);
            if !folder.is_empty() && file.is_file() {
                return Ok(Self { program: program.into(), home: home.into(), folder: folder.into(), file });
            }
        }
        Err(Failure::new(format!(
            "`{program}` has no shared library to embed; on Debian and Ubuntu it is in `libpython3-dev`"
        )))
    }

    /// As [`embed`](Self::embed), for doc examples that are built like an extension, whose PyO3 links no library.
    pub(crate) fn link(&self, command: &mut Command) {
        self.embed(command);
        command.env("CARGO_ENCODED_RUSTDOCFLAGS", format!("-Clink-arg={}", self.file.display()));
    }

    /// Lets a program that `command` builds and runs embed this library, without access to a CUDA driver.
    pub(crate) fn embed(&self, command: &mut Command) {
        command.env("PYO3_PYTHON", &self.program).env("PYTHONHOME", &self.home);
        self.beside(command);
    }

    /// Lets programs that `command` builds and runs load this library, but no CUDA driver.
    pub(crate) fn beside(&self, command: &mut Command) {
        sim::hidden_beside(command, &self.folder);
    }
}

/// Returns why an interpreter cannot be used, from the output of [`PROBE`], or `None` if it can.
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
        // The extension is built for the stable ABI of CPython with the GIL.
        (Some(_), kind) => Some(format!("is a {kind} build")),
    }
}

/// Returns the folder of the virtual environment.
fn folder() -> PathBuf {
    workspace::target().join("venv")
}

/// Returns the failure for an environment that must be created again.
fn broken(what: &str) -> Failure {
    Failure::new(format!("the virtual environment {what}; remove the folder target/venv and run this again"))
}

/// Returns a requirements file with the files that it includes, so that a change in any of them is noticed.
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
        assert_eq!(unsuitable(Some("3.11 cpython")), None);
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
        for file in ["python", "kernels", "functions"] {
            let folder = if file == "kernels" { "examples" } else { "tests" };
            let file = workspace::root().join(folder).join(file).join("requirements.txt");
            let text = with_included(&file).expect("the file is part of the repository");
            let packages = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '-']));
            for line in packages {
                assert!(line.contains("=="), "{line:?} names no exact version");
            }
        }
    }
}
