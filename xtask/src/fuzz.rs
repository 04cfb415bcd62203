//! `cargo xtask fuzz`: runs each fuzz target for some seconds, starting from the conformance corpus.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::python::Library;
use crate::report::Report;
use crate::test_counts::Counts;
use crate::{command_step, files, sim, tools, workspace};

/// A target, and its name in the report.
type Target = (&'static str, &'static str);

const TARGETS: [Target; 5] = [
    ("layout", "Fuzzing: layouts"),
    ("types", "Fuzzing: element types"),
    ("dict", "Fuzzing: interface dicts"),
    ("tensor", "Fuzzing: DLPack structs"),
    (PYTHON, "Fuzzing: Python objects"),
];

/// The target that embeds Python.
const PYTHON: &str = "python";

/// Seconds per target, unless the command line gives a number.
const SECONDS: u32 = 60;

/// Seconds per target in `ci`, which also runs tests on the seeds and variations of them.
const SECONDS_OF_MANY: u32 = 20;

/// The compiler flags that libFuzzer needs, and the checks that stop a program.
///
/// `cargo fuzz` uses the same flags, but compiles each target separately.
const FLAGS: [&str; 11] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Zsanitizer=address",
];

/// Installs the required tools and runs the named targets, or all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (seconds, names) = match arguments.split_first() {
        Some((first, names)) if first.starts_with(|first: char| first.is_ascii_digit()) => {
            let wrong = |_| Failure::usage(format!("`fuzz` takes a number of seconds, found `{first}`"));
            (first.parse().map_err(wrong)?, names)
        }
        _ => (SECONDS, arguments),
    };
    if let Some(unknown) = names.iter().find(|name| TARGETS.iter().all(|(target, _)| *target != **name)) {
        let known = TARGETS.map(|(target, _)| target).join(", ");
        return Err(Failure::usage(format!("there is no fuzz target `{unknown}`; there are: {known}")));
    }
    tools::need_nightly()?;
    let programs = Programs::build()?;
    let mut report = Report::default();
    for (target, name) in TARGETS {
        if names.is_empty() || names.iter().any(|wanted| wanted == target) {
            report.check(name, "Bytes in, facts or an error out, as plain arithmetic says.", || {
                programs.run(target, seconds)
            });
        }
    }
    report.close()
}

/// As [`run`], as part of `ci`. Skips the targets with a reason if there is no nightly compiler.
pub(crate) fn suite(counts: &mut Counts) -> Result<(), Failure> {
    if let Some(why) = tools::no_nightly() {
        counts.skip(TARGETS.len(), why);
        return Ok(());
    }
    let programs = Programs::build()?;
    for (target, _) in TARGETS {
        if let (PYTHON, Err(why)) = (target, &programs.python) {
            counts.skip(1, why);
            continue;
        }
        programs.run(target, SECONDS_OF_MANY)?;
        counts.passed += 1;
    }
    Ok(())
}

/// The compiled targets and their initial inputs.
struct Programs {
    folder: PathBuf,
    /// The library that the Python target embeds, or the reason why it is missing.
    python: Result<Library, Failure>,
}

impl Programs {
    /// Compiles all targets at once, so that nothing is compiled twice, without Python and with it.
    fn build() -> Result<Self, Failure> {
        sim::build()?;
        let mut seeds = workspace::cargo(["run", "--quiet", "--package=interop-fuzz", "--example=seeds"]);
        command_step::run(seeds.args(["--locked", "--"]).arg(place("seeds")))?;
        let python = Library::find();
        // An explicit target, so that the sanitizer applies to the programs and not to build scripts and macros.
        let host = command_step::ask(tools::nightly("rustc").args(["--print", "host-tuple"]))
            .ok_or_else(|| Failure::new("the nightly compiler does not tell what it compiles for"))?;
        let mut cargo = tools::nightly("cargo");
        cargo.args(["build", "--release", "--locked", "--package=interop-fuzz", "--bins", "--target", &host]);
        cargo.arg("--target-dir").arg(place("build"));
        if let Ok(library) = &python {
            cargo.arg("--features=python");
            library.embed(&mut cargo);
        }
        let stack = host.contains("-linux-").then_some("-Cllvm-args=-sanitizer-coverage-stack-depth");
        let flags: Vec<_> = FLAGS.into_iter().chain(stack).collect();
        command_step::run(cargo.env("RUSTFLAGS", flags.join(" ")))?;
        Ok(Self { folder: place("build").join(host).join("release"), python })
    }

    /// Runs a target. Findings are stored in `target/fuzz/artifacts`, new inputs in `target/fuzz/corpus`.
    fn run(&self, target: &str, seconds: u32) -> Result<(), Failure> {
        let folder = |kind: &str| place(kind).join(target);
        for kind in ["corpus", "artifacts"] {
            files::make(&folder(kind))?;
        }
        let mut options = "detect_odr_violation=0".to_owned();
        let mut program = Command::new(self.folder.join(format!("fuzz_{target}")));
        program.current_dir(workspace::root());
        match &self.python {
            Ok(library) => library.embed(&mut program),
            Err(why) if target == PYTHON => return Err(Failure::new(why.to_string())),
            Err(_) => drop(sim::hidden(&mut program)),
        }
        if target == PYTHON {
            // Python keeps memory at exit on purpose, and its own pools would hide errors from the sanitizer.
            options.push_str(":detect_leaks=0");
            program.env("PYTHONMALLOC", "malloc");
        }
        program.env("ASAN_OPTIONS", options).arg(folder("corpus")).arg(folder("seeds"));
        program.arg(format!("-max_total_time={seconds}"));
        program.args(["-max_len=400", "-print_final_stats=1", "-verbosity=0"]);
        // The trailing slash makes this a folder.
        program.arg(format!("-artifact_prefix={}", folder("artifacts").join("").display()));
        command_step::run(&mut program)
    }
}

/// Returns a folder for fuzzing data.
fn place(kind: &str) -> PathBuf {
    workspace::target().join("fuzz").join(kind)
}
