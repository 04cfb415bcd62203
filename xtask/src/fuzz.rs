//! `cargo xtask fuzz`: the fuzz targets, each for some seconds, from the cases of the conformance corpus on.

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

/// The one that embeds Python.
const PYTHON: &str = "python";

/// Seconds for each target, unless the command line says how many.
const SECONDS: u32 = 60;

/// Seconds for each target among all other checks, which try the seeds and what is near them besides.
const SECONDS_OF_MANY: u32 = 20;

/// What libFuzzer wants to see of a program (as `cargo fuzz`, which compiles the targets too, but each by itself), and
/// what is to stop one.
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

/// Installs what is needed, and runs the targets that are named, or all.
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

/// As [`run`], among all other checks; where there is no compiler for it, the reason.
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

/// The targets, compiled, and their first inputs.
struct Programs {
    folder: PathBuf,
    /// What the target with Python embeds, or why it is not there.
    python: Result<Library, Failure>,
}

impl Programs {
    /// Compiles all at once, so that nothing is compiled without Python and again with it.
    fn build() -> Result<Self, Failure> {
        sim::build()?;
        let mut seeds = workspace::cargo(["run", "--quiet", "--package=interop-fuzz", "--example=seeds"]);
        command_step::run(seeds.args(["--locked", "--"]).arg(place("seeds")))?;
        let python = Library::find();
        // Named, so that the sanitizer goes into what runs and not into what runs at compile time.
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

    /// Runs a target. What it finds stays in `target/fuzz/artifacts`, what it learnt in `target/fuzz/corpus`.
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
            // Python keeps memory on purpose, and its own pools would hide what is in them.
            options.push_str(":detect_leaks=0");
            program.env("PYTHONMALLOC", "malloc");
        }
        program.env("ASAN_OPTIONS", options).arg(folder("corpus")).arg(folder("seeds"));
        program.arg(format!("-max_total_time={seconds}"));
        program.args(["-max_len=400", "-print_final_stats=1", "-verbosity=0"]);
        // The slash at the end makes it a folder.
        program.arg(format!("-artifact_prefix={}", folder("artifacts").join("").display()));
        command_step::run(&mut program)
    }
}

/// A folder for what fuzzing makes.
fn place(kind: &str) -> PathBuf {
    workspace::target().join("fuzz").join(kind)
}
