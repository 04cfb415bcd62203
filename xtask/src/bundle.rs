//! `cargo xtask gpu-bundle`: builds everything that runs on a GPU into a folder for a machine without Rust.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::cuda_core::Headers;
use crate::failure::{Failure, no_arguments};
use crate::python::{Environment, Requirements};
use crate::{command_step, extension, files, ptx, rust_kernels, sim, templates, workspace};

/// The maximum size of the bundle, in MiB.
const ROOM: u64 = 60;

/// A package whose programs are part of the bundle.
struct Programs {
    /// The folder of the package in the workspace.
    folder: &'static str,
    /// The cargo arguments that build the programs.
    build: &'static [&'static str],
    /// The folder in the bundle, which determines how `run.py` runs the programs.
    to: &'static str,
    /// Whether the build needs CUDA headers and libclang.
    has_headers: bool,
}

/// The packages. To bundle another package of tests, examples or benches, add a line here.
const PROGRAMS: [Programs; 5] = [
    Programs {
        folder: "tests/cuda",
        build: &["test", "--no-run", "--release", "--test=cuda"],
        to: "rust",
        has_headers: false,
    },
    Programs {
        folder: "tests/cuda-core",
        build: &["test", "--no-run", "--release", "--test=cuda-core"],
        to: "rust",
        has_headers: true,
    },
    Programs {
        folder: "interop-ipc",
        build: &["test", "--no-run", "--release", "--test=gpu"],
        to: "processes",
        has_headers: false,
    },
    Programs {
        folder: "examples/cuda",
        build: &["build", "--release", "--bins"],
        to: "examples",
        has_headers: false,
    },
    Programs {
        folder: "tests/benches",
        build: &["bench", "--no-run", "--bench=cuda", "--bench=device_copies", "--bench=rust_kernels"],
        to: "benches",
        has_headers: false,
    },
];

/// Folders that are copied unchanged.
const FOLDERS: [(&str, &str); 3] =
    [("tests/gpu", "gpu"), ("tests/python/modules", "gpu/modules"), ("examples/kernels/ptx", "kernels")];

/// Single files: Python examples, the output that is expected of examples, helpers shared with the Python tests, and
/// `run.sh`.
const FILES: [(&str, &str); 9] = [
    ("examples/from_python.py", "examples/from_python.py"),
    ("examples/two_gpus.py", "examples/two_gpus.py"),
    ("examples/output.txt", "gpu/output.txt"),
    ("examples/hello-cuda/tests/libraries.py", "gpu/libraries.py"),
    ("tests/python/native.py", "gpu/native.py"),
    ("tests/conformance/capsules.py", "gpu/capsules.py"),
    ("interop-core/include/interop_dlpack.h", "gpu/modules/interop_dlpack.h"),
    ("tests/python/scripts.py", "gpu/scripts.py"),
    ("tests/gpu/run.sh", "run.sh"),
];

/// Builds the bundle and prints its size.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("gpu-bundle", arguments)?;
    let bundle = workspace::target().join("gpu-bundle");
    files::clear(&bundle)?;
    let environment = Environment::prepare(Requirements::Tests)?;
    for (library, file) in extension::compile()? {
        take(&library, &bundle.join("python").join(file))?;
    }
    row_kernels(environment.python().get_program(), &bundle)?;
    random_kernels(&bundle)?;
    let template = templates::hello_cuda(environment.python().get_program())?;
    take(&template, &bundle.join("python/hello_cuda.abi3.so"))?;
    let hello = templates::hello_functions()?;
    files::copy_all(&hello.join("hello_functions"), &bundle.join("python/hello_functions"))?;
    packages(&environment, &bundle.join("packages"))?;
    // Programs with `cust` link a libcuda. At run time they find the real one of the GPU machine.
    sim::build()?;
    for programs in &PROGRAMS {
        for program in built(&mut programs.cargo()?)? {
            take(&program, &bundle.join(programs.to).join(plain_name(&program)))?;
        }
    }
    ptx::build(&[])?;
    files::copy(&workspace::target().join("twins/twins.ptx"), &bundle.join("benches/twins.ptx"))?;
    let root = workspace::root();
    for (from, to) in FOLDERS {
        files::copy_all(&root.join(from), &bundle.join(to))?;
    }
    for (from, to) in FILES {
        files::copy(&root.join(from), &bundle.join(to))?;
    }
    close(&bundle)
}

/// Builds the module with the kernels of rows, and their PTX, which only the bundle has.
fn row_kernels(python: &OsStr, bundle: &Path) -> Result<(), Failure> {
    let mut cargo = workspace::cargo(["build", "--release", "--locked", "--package=interop-row-benches"]);
    command_step::run(cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", python))?;
    let module = workspace::target().join("release/libinterop_rows.so");
    take(&module, &bundle.join("python/interop_rows.abi3.so"))?;
    files::write(&bundle.join("rows/rows.ptx"), rust_kernels::compile("tests/benches/rows/kernels", &[])?)
}

/// The seed of the random kernels of the bundle, and their number.
const RANDOM: [(&str, &str); 2] = [("RANDOM_KERNELS_SEED", "2"), ("RANDOM_KERNELS", "32")];

/// Builds the program that compares random kernels with `run`, and has their PTX.
fn random_kernels(bundle: &Path) -> Result<(), Failure> {
    let folder = "tests/random-kernels";
    let ptx = workspace::target().join("random-kernels/kernels.ptx");
    files::write(&ptx, rust_kernels::compile(folder, &RANDOM)?)?;
    let build = &["test", "--no-run", "--release", "--test=random-kernels"];
    let programs = Programs { folder, build, to: folder, has_headers: false };
    let mut cargo = programs.cargo()?;
    for program in built(cargo.envs(RANDOM).env("RANDOM_KERNELS_PTX", &ptx))? {
        take(&program, &bundle.join("random-kernels").join(plain_name(&program)))?;
    }
    Ok(())
}

/// Python packages that a machine with PyTorch, JAX and `CuPy` lacks, and the Python of that machine.
const PACKAGES: [&str; 2] = ["apache-tvm-ffi==0.1.15.post2", "jax-tvm-ffi==0.1.3"];
const PYTHON: [&str; 5] = [
    "--python-version=3.12",
    "--implementation=cp",
    "--platform=manylinux_2_28_x86_64",
    "--only-binary=:all:",
    "--no-deps",
];

/// Installs them into a folder of the bundle.
fn packages(environment: &Environment, to: &Path) -> Result<(), Failure> {
    let mut pip = environment.python();
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PYTHON).args(PACKAGES);
    command_step::run(pip.arg("--target").arg(to))
}

/// Prints where the bundle is and how large it is.
fn close(bundle: &Path) -> Result<(), Failure> {
    let bytes = size_of(bundle)?;
    let place = bundle.strip_prefix(workspace::root()).unwrap_or(bundle).display();
    println!("\n{place} is ready: {} KiB of the {ROOM} MiB that can be carried.", bytes >> 10);
    println!("On a machine with a GPU start `run.sh` in it; tests/README.md tells more.");
    if bytes > ROOM << 20 {
        return Err(Failure::new(format!("the bundle has more than {ROOM} MiB")));
    }
    Ok(())
}

impl Programs {
    /// Returns the command that builds the programs.
    fn cargo(&self) -> Result<Command, Failure> {
        let mut cargo = workspace::cargo(self.build);
        cargo.args(["--locked", "--message-format=json-render-diagnostics", "--manifest-path"]);
        cargo.arg(workspace::root().join(self.folder).join("Cargo.toml"));
        if self.has_headers {
            Headers::install()?.known_to(&mut cargo);
        }
        Ok(cargo)
    }
}

/// Runs a command that builds programs, and returns them.
fn built(cargo: &mut Command) -> Result<Vec<PathBuf>, Failure> {
    let mut programs = Vec::new();
    command_step::read(cargo, |line| programs.extend(executable(line)))?;
    Ok(programs)
}

/// Returns the program that a message of cargo names. A message is one line of JSON.
fn executable(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    let mut path = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => return Some(path.into()),
            '\\' => path.push(letters.next()?),
            letter => path.push(letter),
        }
    }
}

/// Returns the name of a program without the hash that cargo appends to tests.
fn plain_name(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_hash = |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.rsplit_once('-') {
        Some((plain, hash)) if is_hash(hash) => plain.to_owned(),
        _ => name,
    }
}

/// Copies a program or library without debug symbols.
fn take(from: &Path, to: &Path) -> Result<(), Failure> {
    files::copy(from, to)?;
    let strip = env::var_os("STRIP").unwrap_or_else(|| "strip".into());
    command_step::run(Command::new(strip).arg("--strip-unneeded").arg(to))
}

fn size_of(folder: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in files::entries(folder)? {
        let found = fs::metadata(&entry).map_err(files::at(&entry))?;
        bytes += if found.is_dir() { size_of(&entry)? } else { found.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let message =
            r#"{"reason":"compiler-artifact","executable":"/a\\b/x-0123456789abcdef","fresh":true}"#;
        assert_eq!(executable(message), Some(PathBuf::from("/a\\b/x-0123456789abcdef")));
        assert_eq!(executable(r#"{"executable":null}"#), None);
        assert_eq!(executable(r#"{"executable":"/cut"#), None);
    }

    #[test]
    fn names_lose_their_hash() {
        assert_eq!(plain_name(Path::new("/d/deps/cuda_races-0123456789abcdef")), "cuda_races");
        assert_eq!(plain_name(Path::new("/d/vector-add")), "vector-add");
    }
}
