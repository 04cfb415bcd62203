//! `cargo xtask compile-time`: measures what the crate adds to the compile time of its users, and to their extensions.
//!
//! The number of crates has a limit, and exceeding it is a failure. Times are only printed, because they depend on the
//! computer and its load.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::python::Environment;
use crate::{command_step, files, templates, workspace};

/// The maximum number of crates in the tree of `interop-core` with default features, including itself.
const MAX_CRATES: usize = 9;
/// The number of structs that a generated crate derives.
const STRUCTS: usize = 500;
/// How often each crate is checked, unless a number is given.
const RUNS: usize = 5;

/// A generated crate of many structs with one derive.
struct Subject {
    /// The name of the package.
    name: &'static str,
    /// Its dependency, as a line of `Cargo.toml`.
    dependency: fn() -> String,
    /// The start of the source file.
    head: &'static str,
    /// Returns the struct with this number.
    item: fn(usize) -> String,
}

/// Our derive and serde's. The fields are the same, except that serde does not know stream handles and gets a number.
const SUBJECTS: [Subject; 2] = [
    Subject {
        name: "derives-ours",
        dependency: || {
            format!(
                "interop-core = {{ path = {:?} }}",
                workspace::root().join("interop-core").display().to_string()
            )
        },
        head: "use interop_core::{CudaArray, StreamHandle};",
        item: |number| {
            format!(
                "#[derive(CudaArray)]\n#[cuda_array(shape = [height, width])]\npub struct Image{number} {{\n    \
                 #[cuda_array(data)]\n    pub pixels: Vec<f32>,\n    pub height: usize,\n    pub width: usize,\n    \
                 #[cuda_array(stream)]\n    pub stream: StreamHandle,\n}}\n"
            )
        },
    },
    Subject {
        name: "derives-serde",
        dependency: || "serde = { version = \"1\", features = [\"derive\"] }".into(),
        head: "use serde::Serialize;",
        item: |number| {
            format!(
                "#[derive(Serialize)]\npub struct Image{number} {{\n    pub pixels: Vec<f32>,\n    pub height: \
                 usize,\n    pub width: usize,\n    pub stream: usize,\n}}\n"
            )
        },
    },
];

/// Counts the crates, then measures the times.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let runs = match arguments {
        [] => RUNS,
        [runs] => runs.parse().ok().filter(|runs| *runs > 0).ok_or_else(|| {
            Failure::usage(format!("`compile-time` takes a number of runs, found `{runs}`"))
        })?,
        _ => return Err(Failure::usage("`compile-time` takes one number of runs")),
    };
    let folder = workspace::target().join("compile-time");
    let counted = count();
    cold_build(&folder.join("cold"), runs)?;
    many_structs(&folder.join("structs"), runs)?;
    extensions(&folder.join("extensions"), runs)?;
    counted
}

/// Counts the crates that users build, with default features and with none.
fn count() -> Result<(), Failure> {
    command_step::announce("Crates", "What is built for `interop-core`, and that its core needs no macros.");
    let crates = tree(&[])?;
    println!("    default features: {} crates, {MAX_CRATES} at most: {}", crates.len(), crates.join(", "));
    let bare = tree(&["--no-default-features"])?;
    println!("    no features: {}", bare.join(", "));
    let macros: Vec<_> = bare.iter().filter(|name| name.contains("proc-macro")).collect();
    if crates.len() > MAX_CRATES {
        return Err(Failure::new(format!(
            "{} crates with default features, {MAX_CRATES} at most",
            crates.len()
        )));
    }
    if !macros.is_empty() {
        return Err(Failure::new(format!("macros without the feature `derive`: {macros:?}")));
    }
    Ok(())
}

/// Returns the crates in the tree of `interop-core`, each once, with macros marked.
fn tree(arguments: &[&str]) -> Result<Vec<String>, Failure> {
    let mut tree = workspace::cargo(["tree", "--package=interop-core", "--edges=normal,build", "--locked"]);
    tree.args(["--prefix=none", "--no-dedupe"]).args(arguments);
    let lines = command_step::ask(&mut tree).ok_or_else(|| Failure::new("`cargo tree` failed"))?;
    // `quote v1.0.47`, `interop-derive v0.1.0 (proc-macro) (/path)`
    let name = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        if words.any(|word| word == "(proc-macro)") { format!("{name} (proc-macro)") } else { name.into() }
    };
    let mut crates: Vec<String> = lines.lines().map(name).collect();
    crates.sort();
    crates.dedup();
    Ok(crates)
}

/// Builds `interop-core` into an empty folder.
fn cold_build(folder: &Path, runs: usize) -> Result<(), Failure> {
    command_step::announce(
        "Cold build",
        "`cargo build -p interop-core` with default features, into an empty folder.",
    );
    quietly(&mut workspace::cargo(["fetch", "--locked"]))?;
    let mut times = Vec::new();
    for _ in 0..runs {
        files::clear(folder)?;
        let mut build = workspace::cargo(["build", "--package=interop-core", "--locked", "--target-dir"]);
        times.push(quietly(build.arg(folder))?);
    }
    println!("    {}", spread(&mut times));
    files::clear(folder)
}

/// Checks both generated crates in turn.
fn many_structs(folder: &Path, runs: usize) -> Result<(), Failure> {
    let why =
        format!("`cargo check` of {STRUCTS} structs, dependencies built: ours beside serde's `Serialize`.");
    command_step::announce("Many structs", &why);
    let sources = generate(folder)?;
    let mut times = SUBJECTS.map(|_| Vec::new());
    // One additional run: the first one builds the dependencies and is not counted.
    for run in 0..=runs {
        for ((subject, file), times) in SUBJECTS.iter().zip(&sources).zip(&mut times) {
            let time = check(folder, subject, file)?;
            if run > 0 {
                times.push(time);
            }
        }
    }
    for (subject, times) in SUBJECTS.iter().zip(&mut times) {
        println!("    {:<15}{}", subject.name, spread(times));
    }
    let [ours, serde] = times.map(|times| median(&times).as_secs_f64());
    println!("    ratio          {:.2}", ours / serde);
    Ok(())
}

/// Builds a Python extension of nothing but `PyO3`, and the template `hello-python`.
fn extensions(folder: &Path, runs: usize) -> Result<(), Failure> {
    command_step::announce(
        "Extensions",
        "One of PyO3 alone beside `hello-python`: a release build into an empty folder, what is built, and its import.",
    );
    let (template, empty) = (templates::sources("hello-python")?, folder.join("empty-python"));
    let manifest = files::read(&template.join("Cargo.toml"))?;
    let is_kept = |line: &&str| !line.starts_with("interop-core") && !line.starts_with("stubs");
    let manifest = manifest.lines().filter(is_kept).collect::<Vec<_>>().join("\n").replace("hello", "empty");
    files::write(&empty.join("Cargo.toml"), manifest)?;
    files::copy(&template.join("Cargo.lock"), &empty.join("Cargo.lock"))?;
    files::write(&empty.join("src/lib.rs"), "#[pyo3::pymodule]\nmod empty_python {}\n")?;
    extension(&empty, "empty_python", &folder.join("target"), runs)?;
    extension(&template, "hello_python", &folder.join("target"), runs)
}

/// Builds an extension as it would be published, and imports it.
fn extension(package: &Path, module: &str, target: &Path, runs: usize) -> Result<(), Failure> {
    files::clear(target)?;
    let mut build = workspace::cargo(["build", "--release", "--target-dir"]);
    build.arg(target).current_dir(package).env("PYO3_BUILD_EXTENSION_MODULE", "1");
    let time = quietly(build.env("PYO3_PYTHON", Environment::base()?))?;
    let library = target.join(format!("release/{DLL_PREFIX}{module}{DLL_SUFFIX}"));
    let size = fs::metadata(&library).map_err(files::at(&library))?.len();
    let headers = command_step::ask(Command::new("readelf").arg("--dynamic").arg(&library));
    let headers = headers.unwrap_or_default();
    let linked = headers.lines().filter_map(|line| line.split_once("library: [")?.1.strip_suffix(']'));
    let linked = linked.collect::<Vec<_>>().join(", ");
    files::copy(&library, &target.join(format!("{module}{}", if cfg!(windows) { ".pyd" } else { ".so" })))?;
    let code = format!(
        "import sys, time; sys.path.append('.'); start = time.perf_counter_ns(); import {module}; \
         print(time.perf_counter_ns() - start)"
    );
    let mut times = Vec::new();
    for _ in 0..runs {
        let mut python = Command::new(Environment::base()?);
        let printed = command_step::ask(python.args(["-I", "-c", &code]).current_dir(target));
        let time = printed.and_then(|text| text.parse().ok()).map(Duration::from_nanos);
        times.push(time.ok_or_else(|| Failure::new(format!("`import {module}` fails")))?);
    }
    println!("    {module}: built in {time:.1?}; {} KB; links {linked}", size / 1000);
    println!("    {module}: imported in {}", spread(&mut times));
    Ok(())
}

/// Writes a workspace with both crates and returns their source files.
fn generate(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut sources = Vec::new();
    for Subject { name, dependency, head, item } in &SUBJECTS {
        let package = folder.join(name);
        let manifest = format!(
            "[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n[lib]\npath = \
             \"lib.rs\"\n\n[dependencies]\n{}\n",
            dependency()
        );
        files::write(&package.join("Cargo.toml"), manifest)?;
        let mut code = format!("{head}\n");
        for number in 0..STRUCTS {
            // Writing to a string never fails.
            let _ = write!(code, "\n{}", item(number));
        }
        files::write(&package.join("lib.rs"), code)?;
        sources.push(package.join("lib.rs"));
    }
    let names = SUBJECTS.map(|Subject { name, .. }| format!("{name:?}")).join(", ");
    let manifest = format!("[workspace]\nresolver = \"3\"\nmembers = [{names}]\n");
    files::write(&folder.join("Cargo.toml"), manifest)?;
    // Uses the same versions as this workspace; cargo removes unused entries.
    files::copy(&workspace::root().join("Cargo.lock"), &folder.join("Cargo.lock"))?;
    Ok(sources)
}

/// Checks one crate again, without its dependencies.
fn check(folder: &Path, subject: &Subject, file: &Path) -> Result<Duration, Failure> {
    // Rewriting the file makes cargo check it again, and without incremental builds rustc starts from scratch.
    files::write(file, files::read(file)?)?;
    let mut check = workspace::cargo(["check", "--package", subject.name, "--target-dir"]);
    check.arg(folder.join("target")).current_dir(folder).env("CARGO_INCREMENTAL", "0");
    quietly(&mut check)
}

/// Runs a command and returns how long it took. Its output is shown only if it fails.
fn quietly(command: &mut Command) -> Result<Duration, Failure> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output();
    let time = start.elapsed();
    match output {
        Ok(output) if output.status.success() => Ok(time),
        Ok(output) => Err(Failure::new(format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr)))),
        Err(error) => Err(Failure::new(format!("{command:?}: {error}"))),
    }
}

/// Returns the middle one of sorted times.
fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

/// Formats the median and the range of the times, which this function sorts.
fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let (least, most) = (times[0], times[times.len() - 1]);
    format!("{:.2?}, the median of {} runs ({least:.2?} to {most:.2?})", median(times), times.len())
}
