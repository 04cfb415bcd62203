//! `cargo xtask fuzz`: the fuzz targets, each for some seconds, from the cases of the conformance corpus on.

use std::fs;

use crate::counts::Counts;
use crate::failure::Failure;
use crate::report::Report;
use crate::tools::{self, Tool};
use crate::{sim, step, workspace};

const TOOL: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };

/// The targets, and the name of each in the report.
const TARGETS: [(&str, &str); 4] = [
    ("layout", "Fuzzing: layouts"),
    ("types", "Fuzzing: element types"),
    ("dict", "Fuzzing: interface dicts"),
    ("tensor", "Fuzzing: DLPack structs"),
];

/// Seconds for each target, unless the command line says how many.
const SECONDS: u32 = 60;

/// Installs what is needed, and runs every target.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let seconds = match arguments {
        [] => SECONDS,
        [seconds] => seconds
            .parse()
            .map_err(|_| Failure::usage(format!("`fuzz` takes a number of seconds, found `{seconds}`")))?,
        _ => return Err(Failure::usage("`fuzz` takes one argument: the seconds for each target")),
    };
    tools::need_nightly()?;
    TOOL.install()?;
    sim::build()?;
    seeds()?;
    let mut report = Report::default();
    for (target, name) in TARGETS {
        report.check(name, "Bytes in, facts or an error out, as plain arithmetic says.", || {
            one(target, seconds)
        });
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
        let folder = folder(kind);
        fs::create_dir_all(&folder)
            .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    }
    let mut command = TOOL.nightly();
    command.args(["run", "--fuzz-dir", "fuzz", "--target-dir", "target/fuzz/build"]);
    command.arg(format!("fuzz_{target}")).arg(folder("corpus")).arg(folder("seeds")).arg("--");
    command.arg(format!("-max_total_time={seconds}")).args([
        "-max_len=400",
        "-print_final_stats=1",
        "-verbosity=0",
    ]);
    // The slash at the end makes it a folder.
    command.arg(format!("-artifact_prefix={}", folder("artifacts").join("").display()));
    step::run(sim::hidden(&mut command))
}
