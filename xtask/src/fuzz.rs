//! `cargo xtask fuzz`: the fuzz targets, each for some seconds, from the cases of the conformance corpus on.

use crate::counts::Counts;
use crate::failure::Failure;
use crate::python::Library;
use crate::report::Report;
use crate::tools::{self, Tool};
use crate::{files, sim, step, workspace};

const TOOL: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };

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
    TOOL.install()?;
    sim::build()?;
    seeds()?;
    let mut report = Report::default();
    for (target, name) in TARGETS {
        if names.is_empty() || names.iter().any(|wanted| wanted == target) {
            report.check(name, "Bytes in, facts or an error out, as plain arithmetic says.", || {
                one(target, seconds)
            });
        }
    }
    report.close()
}

/// As [`run`], among all other checks; where the compiler or the tool cannot be had, the reason.
pub(crate) fn suite(counts: &mut Counts) -> Result<(), Failure> {
    let missing =
        || TOOL.install().err().map(|failure| format!("{} cannot be installed: {failure}", TOOL.name));
    if let Some(why) = tools::no_nightly().or_else(missing) {
        println!("    skipped: {why}");
        counts.skipped += TARGETS.len() as u64;
        return Ok(());
    }
    seeds()?;
    for (target, _) in TARGETS {
        if let (PYTHON, Err(why)) = (target, Library::find()) {
            println!("    skipped: {why}");
            counts.skipped += 1;
            continue;
        }
        one(target, SECONDS)?;
        counts.passed += 1;
    }
    Ok(())
}

/// Writes the first inputs.
fn seeds() -> Result<(), Failure> {
    let mut cargo =
        workspace::cargo(["run", "--quiet", "--package=interop-fuzz", "--example=seeds", "--locked", "--"]);
    step::run(cargo.arg(workspace::target().join("fuzz/seeds")))
}

/// Runs a target. What it finds stays in `target/fuzz/artifacts`, what it learnt in `target/fuzz/corpus`.
fn one(target: &str, seconds: u32) -> Result<(), Failure> {
    let folder = |kind: &str| workspace::target().join("fuzz").join(kind).join(target);
    for kind in ["corpus", "artifacts"] {
        files::make(&folder(kind))?;
    }
    let mut command = TOOL.nightly();
    command.args(["run", "--fuzz-dir", "fuzz", "--target-dir", "target/fuzz/build"]);
    if target == PYTHON {
        // Python keeps memory on purpose, and its own pools would hide what is in them.
        command
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .env("PYTHONMALLOC", "malloc")
            .args(["--features", PYTHON]);
        Library::find()?.embed(&mut command);
    } else {
        sim::hidden(&mut command);
    }
    command.arg(format!("fuzz_{target}")).arg(folder("corpus")).arg(folder("seeds")).arg("--");
    command.arg(format!("-max_total_time={seconds}")).args([
        "-max_len=400",
        "-print_final_stats=1",
        "-verbosity=0",
    ]);
    // The slash at the end makes it a folder.
    command.arg(format!("-artifact_prefix={}", folder("artifacts").join("").display()));
    step::run(&mut command)
}
