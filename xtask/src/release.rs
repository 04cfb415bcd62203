//! What a release needs: a version that says whether users have to change their code, and archives that cargo accepts.

use std::process::Command;

use crate::failure::Failure;
use crate::suite::Suite;
use crate::test_counts::Counts;
use crate::tools::Tool;
use crate::{command_step, files, packages, published, workspace};

pub(crate) const VERSIONS: Suite = Suite {
    word: "semver",
    name: "Versions",
    why: "The version allows what has changed since the last release.",
    run: versions,
};

pub(crate) const PUBLICATION: Suite = Suite {
    word: "publish",
    name: "Publication",
    why: "Cargo would publish each package of the last commit, after those that it depends on.",
    run: publication,
};

const SEMVER_CHECKS: Tool = Tool { name: "cargo-semver-checks", version: "0.51.0" };

/// The tags of releases.
const TAGS: &str = "v[0-9]*";

/// Compares the public items with those of the last release: the version must allow what changed.
///
/// The files `public-api.txt` show more, such as another argument type, but say nothing about versions.
fn versions(counts: &mut Counts) -> Result<(), Failure> {
    let packages = published::libraries()?;
    let mut git = Command::new("git");
    git.current_dir(workspace::root()).args(["describe", "--tags", "--abbrev=0", "--match", TAGS]);
    let Some(tag) = command_step::ask(&mut git) else {
        let missing = "a tag of the last release, such as `v0.1.0`, in the history of this commit";
        counts.skip(packages.len(), format_args!("there is nothing to compare with: missing is {missing}"));
        return Ok(());
    };
    SEMVER_CHECKS.install()?;
    for package in packages {
        let mut check = SEMVER_CHECKS.command();
        check.args(["--baseline-rev", &tag, "--only-explicit-features", "--package", &package]);
        if package == "interop-core" {
            let plain = workspace::plain_features();
            check.arg(plain.replace("interop-core/", ""));
        }
        command_step::run(&mut check)?;
        counts.passed += 1;
    }
    Ok(())
}

/// Does all that `cargo publish` does for each package, in the order of their dependencies, but the upload: from a clone of the
/// last commit, and with the packages before it in place of crates.io.
fn publication(counts: &mut Counts) -> Result<(), Failure> {
    let place = workspace::target().join("guard/publish");
    let clone = packages::clone(&place)?;
    let mut publish = workspace::cargo(["publish", "--workspace", "--dry-run", "--locked"]);
    command_step::run(
        publish.arg("--target-dir").arg(place.with_file_name("publish-build")).current_dir(&clone),
    )?;
    counts.passed += published::published()?.len() as u64;
    if files::read(&clone.join("Cargo.toml"))?.contains("\nrepository = \"\"\n") {
        counts.skip(1, "`repository` in Cargo.toml is empty; fill it in before the first release");
    } else {
        counts.passed += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Cargo itself only warns where a description or a readme is missing.
    #[test]
    fn each_package_has_what_crates_io_shows() {
        let published = published::published().expect("packages");
        assert!(published.len() >= 6, "{published:?}");
        for package in published {
            let folder = workspace::root().join(&package);
            let manifest = files::read(&folder.join("Cargo.toml")).expect("a manifest");
            for line in [
                "description = \"".to_owned(),
                "readme = \"".to_owned(),
                format!("documentation = \"https://docs.rs/{package}\"\n"),
                "keywords".to_owned(),
                "categories".to_owned(),
                "license.workspace = true\n".to_owned(),
                "repository.workspace = true\n".to_owned(),
                "rust-version.workspace = true\n".to_owned(),
                "version.workspace = true\n".to_owned(),
                "[package.metadata.docs.rs]\n".to_owned(),
            ] {
                assert!(manifest.contains(&format!("\n{line}")), "{package} has no line `{line}`");
            }
            assert!(manifest.contains("\"LICENSE-*\""), "the archive of {package} has no licence");
            for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
                let of = |folder: &Path| files::read(&folder.join(licence)).expect("a licence");
                assert_eq!(of(&folder), of(&workspace::root()), "{licence} of {package}");
            }
        }
    }
}
