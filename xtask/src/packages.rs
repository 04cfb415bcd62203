//! The packages as they would be published: tested and documented from their own archives.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::test_counts::Counts;
use crate::{command_step, files, published, sim, test_runs, tools, workspace};

/// Packages a clone of the last commit. Then it tests and documents the unpacked archives, in a workspace that has nothing else.
pub(crate) fn run(counts: &mut Counts) -> Result<(), Failure> {
    sim::build()?;
    let place = workspace::target().join("guard/packages");
    let mut package = workspace::cargo(["package", "--locked", "--no-verify"]);
    package.args(published::each_package()?).current_dir(clone(&place)?);
    command_step::run(package.arg("--target-dir").arg(&place))?;
    let alone = place.join("alone");
    files::make(&alone)?;
    for archive in files::entries(&place.join("package"))? {
        // `-m`: the files in an archive are as old as each other, and cargo would take changed ones for built.
        if archive.extension().is_some_and(|extension| extension == "crate") {
            command_step::run(Command::new("tar").arg("-xmzf").arg(archive).arg("-C").arg(&alone))?;
        }
    }
    let mut manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n[patch.crates-io]\n".to_owned();
    let unpacked = files::entries(&alone)?;
    for folder in &unpacked {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let package = name.rsplit_once('-').map_or(&*name, |(package, _)| package);
        let _ = writeln!(manifest, "{package} = {{ path = {name:?} }}");
    }
    files::write(&alone.join("Cargo.toml"), manifest)?;
    files::copy(&workspace::root().join("Cargo.lock"), &alone.join("Cargo.lock"))?;
    let build = place.with_file_name("packages-build");
    let mut test = workspace::cargo(["test", "--workspace", "--lib", "--examples"]);
    test.arg(workspace::plain_features()).current_dir(&alone);
    test_runs::follow(sim::hidden(test.arg("--target-dir").arg(&build)), counts)?;
    if let Some(why) = tools::no_nightly() {
        counts.skip(unpacked.len(), why);
        return Ok(());
    }
    for folder in &unpacked {
        document(folder, &build)?;
        counts.passed += 1;
    }
    Ok(())
}

/// Clones the last commit into a folder, from which it removes everything else, and returns the folder of the clone.
pub(crate) fn clone(place: &Path) -> Result<PathBuf, Failure> {
    files::clear(place)?;
    let folder = place.join("clone");
    let mut clone = Command::new("git");
    command_step::run(clone.args(["clone", "--quiet"]).arg(workspace::root()).arg(&folder))?;
    Ok(folder)
}

/// Documents an unpacked package as docs.rs does: with the settings of its manifest, without CUDA, and with the nightly compiler.
fn document(folder: &Path, build: &Path) -> Result<(), Failure> {
    let manifest = files::read(&folder.join("Cargo.toml"))?;
    let (_, settings) = manifest.split_once("[package.metadata.docs.rs]").unwrap_or_default();
    let (settings, _) = settings.split_once("\n[").unwrap_or((settings, ""));
    let list = |key: &str| {
        let list = settings.split_once(&format!("{key} = [")).and_then(|(_, rest)| rest.split_once("]\n"));
        let quoted = list.map_or("", |(list, _)| list).split('"').skip(1).step_by(2);
        quoted.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut rustdoc = tools::nightly("cargo");
    rustdoc.args(["rustdoc", "--lib", "--quiet"]).arg("--features").arg(list("features").join(","));
    rustdoc.args(list("cargo-args")).arg("--target-dir").arg(build).current_dir(folder);
    rustdoc.env("DOCS_RS", "1").env("CUDA_LIBRARY_PATH", "").env_remove("PYO3_PYTHON");
    rustdoc.args(["--", "--cfg=docsrs", "-Zunstable-options", "-Dwarnings"]);
    command_step::run(rustdoc.args(list("rustdoc-args")))
}
