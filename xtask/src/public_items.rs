//! The public items of the published packages, which a file of each package records.

use crate::failure::Failure;
use crate::published::published;
use crate::test_counts::Counts;
use crate::{command_step, files, tools, workspace};

/// Runs the fast check if there is a nightly compiler; otherwise skips it with the reason.
pub(crate) fn suite(counts: &mut Counts) -> Result<(), Failure> {
    if let Some(why) = tools::no_nightly() {
        counts.skip(published()?.len(), why);
        return Ok(());
    }
    compare(counts)
}

/// Compares the public items with the recorded ones.
pub(crate) fn compare(counts: &mut Counts) -> Result<(), Failure> {
    let mut changes = Vec::new();
    for package in &published()? {
        let found = items(package)?;
        let file = record(package);
        let recorded = files::read(&workspace::root().join(&file))?;
        let missing = |from: &str, of: &str, sign: char| {
            let lines = from.lines().filter(|line| !of.lines().any(|other| other == *line));
            lines.fold(String::new(), |list, line| format!("{list}\n    {sign} {line}"))
        };
        let change = missing(&recorded, &found, '-') + &missing(&found, &recorded, '+');
        if change.is_empty() && recorded == found {
            counts.passed += 1;
        } else {
            counts.failed += 1;
            changes.push(format!("{file}:{change}"));
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    let advice = "if that is meant, run `cargo xtask bless` and write it into CHANGELOG.md";
    Err(Failure::new(format!("the public items changed; {advice}\n{}", changes.join("\n"))))
}

/// Records the current public items.
pub(crate) fn bless() -> Result<(), Failure> {
    if let Some(why) = tools::no_nightly() {
        println!("    left as they are: {why}");
        return Ok(());
    }
    for package in &published()? {
        files::write(&workspace::root().join(record(package)), items(package)?)?;
    }
    Ok(())
}

/// Returns the file with the recorded items of a package.
fn record(package: &str) -> String {
    format!("{package}/public-api.txt")
}

/// Returns the public items of a package with all its features but that of `cuda-core`.
fn items(package: &str) -> Result<String, Failure> {
    let folder = workspace::target().join("guard/api");
    let mut rustdoc = tools::nightly("cargo");
    rustdoc.args(["rustdoc", "--lib", "--locked", "--quiet", "--package", package]);
    if package == "interop-core" {
        rustdoc.arg(workspace::features_but(&[]));
    }
    rustdoc.arg("--target-dir").arg(&folder);
    command_step::run(rustdoc.args([
        "--",
        "-Zunstable-options",
        "--output-format=json",
        "--cap-lints=allow",
    ]))?;
    let json = folder.join("doc").join(format!("{}.json", package.replace('-', "_")));
    let mut printer = workspace::cargo(["run", "--locked", "--quiet", "--package=interop-public-api", "--"]);
    let mut items = String::new();
    command_step::read(printer.arg(json), |line| {
        items.push_str(line);
        items.push('\n');
    })?;
    Ok(items)
}
