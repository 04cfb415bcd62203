//! Files and folders: a failure names the path, and a folder that is needed is made.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::failure::Failure;

/// Makes an error about `path` a failure that names it.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("{}: {error}", path.display()))
}

/// Makes a folder and those around it, unless they are there.
pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(at(folder))
}

/// Removes a folder and all in it, if it is there.
pub(crate) fn clear(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

/// The text of a file.
pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(at(file))
}

/// Writes a file.
pub(crate) fn write(file: &Path, text: impl AsRef<[u8]>) -> Result<(), Failure> {
    file.parent().map_or(Ok(()), make)?;
    fs::write(file, text).map_err(at(file))
}

/// Copies a file.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    to.parent().map_or(Ok(()), make)?;
    fs::copy(from, to).map(drop).map_err(at(from))
}

/// Copies what is in a folder, without what Python leaves behind.
pub(crate) fn copy_all(from: &Path, to: &Path) -> Result<(), Failure> {
    for entry in entries(from)? {
        let name = entry.file_name().unwrap_or_default().to_owned();
        if !entry.is_dir() {
            copy(&entry, &to.join(name))?;
        } else if name != "__pycache__" {
            copy_all(&entry, &to.join(name))?;
        }
    }
    Ok(())
}

/// Puts a copy of `from` at `to` in one step: a program that runs meanwhile keeps the file that it has loaded. A file that is
/// the same already stays, so that nothing is linked anew.
pub(crate) fn replace(from: &Path, to: &Path) -> Result<(), Failure> {
    let bytes = fs::read(from).map_err(at(from))?;
    if fs::read(to).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    let fresh = to.with_extension("new");
    write(&fresh, bytes)?;
    fs::rename(&fresh, to).map_err(at(to))
}

/// What is in a folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let found = fs::read_dir(folder).and_then(|found| found.map(|entry| Ok(entry?.path())).collect());
    found.map_err(at(folder))
}
