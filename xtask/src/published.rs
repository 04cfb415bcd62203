//! The packages that are published.

use crate::failure::Failure;
use crate::{command_step, files, workspace};

/// Returns the names of the published packages, which are also those of their folders: the ones whose manifests do not
/// say `publish = false`.
pub(crate) fn published() -> Result<Vec<String>, Failure> {
    let metadata = workspace::cargo(["metadata", "--no-deps", "--format-version=1", "--locked", "--quiet"]);
    let metadata = command_step::ask(&mut { metadata });
    let metadata = metadata.ok_or_else(|| Failure::new("`cargo metadata` fails".to_owned()))?;
    let (mut names, mut current) = (Vec::new(), "");
    for part in metadata.split(r#"{"name":""#) {
        // A package has a version after its name, and a dependency has a source.
        current = part.split_once(r#"","version":"#).map_or(current, |(name, _)| name);
        if part.contains(r#""publish":null"#) {
            names.push(current.to_owned());
        }
    }
    Ok(names)
}

/// Returns the names of the published packages that programs are compiled with: all but the procedural macros.
pub(crate) fn libraries() -> Result<Vec<String>, Failure> {
    let mut libraries = Vec::new();
    for package in published()? {
        let manifest = files::read(&workspace::root().join(&package).join("Cargo.toml"))?;
        if !manifest.contains("\nproc-macro = true\n") {
            libraries.push(package);
        }
    }
    Ok(libraries)
}

/// Returns the arguments that select the published packages.
pub(crate) fn each_package() -> Result<Vec<String>, Failure> {
    Ok(published()?.iter().map(|package| format!("--package={package}")).collect())
}
