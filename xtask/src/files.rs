//! File operations: a failure names the path, and missing parent folders are created.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::failure::Failure;

/// Converts an I/O error to a failure that names `path`.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("{}: {error}", path.display()))
}

/// Creates a folder and its parents, unless they exist.
pub(crate) fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(at(folder))
}

/// Removes a folder and its contents, if it exists.
pub(crate) fn clear(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(folder)(error)),
        _ => Ok(()),
    }
}

/// Reads a text file.
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

/// Copies the contents of a folder, without Python's caches.
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

/// Replaces `to` with a copy of `from` atomically, so that a running program keeps the file that it has loaded.
///
/// An identical file is left alone, so that nothing is linked again.
pub(crate) fn replace(from: &Path, to: &Path) -> Result<(), Failure> {
    let bytes = fs::read(from).map_err(at(from))?;
    if fs::read(to).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    let fresh = to.with_extension("new");
    write(&fresh, bytes)?;
    fs::rename(&fresh, to).map_err(at(to))
}

/// Returns the entries of a folder.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let found = fs::read_dir(folder).and_then(|found| found.map(|entry| Ok(entry?.path())).collect());
    found.map_err(at(folder))
}

/// Returns the files below a folder that have one of these extensions, with their text.
#[cfg(test)]
pub(crate) fn texts_below(folder: &Path, extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in entries(folder).expect("a folder with sources") {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if path.is_dir() {
            found.extend(texts_below(&path, extensions));
        } else if extensions.contains(&extension) {
            let text = read(&path).expect("a file of the repository");
            found.push((path, text));
        }
    }
    found
}
