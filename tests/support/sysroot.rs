//! A toolchain without the sources of the standard library.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the cases with a toolchain that has no sources of the standard library. With them rustc quotes a line wherever a
/// message names such a source, so the messages would depend on whether `rust-src` is installed.
#[expect(unsafe_code, reason = "cargo takes a wrapper of the compiler from the environment")]
pub(crate) fn without_sources() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output().unwrap();
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    if !sysroot.join("lib/rustlib/src").exists() {
        return;
    }
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sysroot");
    let _ = fs::remove_dir_all(&copy);
    for (folder, left_out) in [("", "lib"), ("lib", "rustlib"), ("lib/rustlib", "src")] {
        fs::create_dir_all(copy.join(folder)).unwrap();
        for entry in fs::read_dir(sysroot.join(folder)).unwrap().map(Result::unwrap) {
            if entry.file_name() != left_out {
                symlink(entry.path(), copy.join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
    let wrapper = copy.join("rustc");
    fs::write(&wrapper, format!("#!/bin/sh\nexec \"$@\" --sysroot='{}'\n", copy.display())).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    // SAFETY: no other test of this program uses the environment.
    unsafe { std::env::set_var("RUSTC_WRAPPER", wrapper) };
}
