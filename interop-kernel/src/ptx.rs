//! Compiles a crate of kernels to PTX by the stable compiler, and says when the PTX is older than its sources.
//!
//! The crate of the kernels has an example, `examples/ptx.rs`:
//!
//! ```no_run
//! //! Compiles the kernels to `kernels.ptx`.
//! fn main() -> std::process::ExitCode {
//!     interop_kernel::ptx::main(env!("CARGO_MANIFEST_DIR"), "kernels.ptx")
//! }
//! ```
//!
//! and a test, which needs no compiler for kernels:
//!
//! ```no_run
//! # #[allow(clippy::test_attr_in_doctest)]
//! #[test]
//! fn ptx_is_compiled_from_these_sources() {
//!     interop_kernel::ptx::assert_current(env!("CARGO_MANIFEST_DIR"), "kernels.ptx");
//! }
//! ```
//!
//! `cargo run --example ptx` writes the file; begin with an empty one. Its first lines name the compiler, the version of this crate, and
//! each source in the workspace with a checksum. Compiling needs `rustup component add rust-src`, once.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// How the first lines of a PTX file begin.
const BY: &str = "// Compiled by rustc ";
const WITH: &str = "// with interop-kernel ";
const OF: &str = "// of ";

/// The profile of the compilation, so that a project needs none.
const PROFILE: [&str; 5] = [
    "profile.ptx.inherits=\"release\"",
    "profile.ptx.codegen-units=1",
    "profile.ptx.debug=false",
    "profile.ptx.lto=\"fat\"",
    "profile.ptx.panic=\"abort\"",
];

/// What to do about the mistakes that only a device finds.
const HINT: &str = "The kernels do not compile for a GPU, which has no `std`. If a crate does not compile: write `default-features = false` \
                    for it; of `half` use `interop_kernel::half`. If a float has no method such as `sqrt`: use `interop_kernel::math`, or \
                    the crate `libm`.";

/// Compiles the kernels of a package, and prints why if that fails: the function `main` of a command. `folder` is that of the package,
/// and `file` the PTX in it.
#[must_use]
pub fn main(folder: impl AsRef<Path>, file: impl AsRef<Path>) -> ExitCode {
    match compile(folder, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles the kernels of a package to PTX. `folder` is that of the package, and `file` the PTX in it.
///
/// # Errors
///
/// A text: the compiler has no sources of `core`, or a kernel does not compile.
pub fn compile(folder: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<(), String> {
    let folder = fs::canonicalize(&folder).map_err(|why| at(folder.as_ref(), &why))?;
    let (version, sysroot) = (ask(&["--version"])?, ask(&["--print=sysroot"])?);
    if !Path::new(&sysroot).join("lib/rustlib/src/rust/library/core/Cargo.toml").is_file() {
        return Err(
            "the compiler has no sources of `core`, which kernels need: run `rustup component add rust-src`"
                .to_owned(),
        );
    }
    let target = target_folder(&folder)?;
    let ptx = run(&folder, &target)?;
    let sources = sources(&folder, &target)?;
    let mut text = format!("{BY}{}\n", version.trim_start_matches("rustc "));
    let _ = writeln!(text, "{WITH}{}", env!("CARGO_PKG_VERSION"));
    for source in sources {
        let _ = writeln!(text, "{OF}{source} {}", checksum(&folder.join(&source))?);
    }
    // The comments are a twentieth, and some name folders of this machine.
    let is_kept = |line: &&str| !line.is_empty() && !line.trim_start().starts_with("//");
    text.extend(ptx.lines().filter(is_kept).flat_map(|line| [line, "\n"]));
    let file = folder.join(file);
    fs::write(&file, &text).map_err(|why| at(&file, &why))?;
    println!("{}: {} kernels", file.display(), text.matches(".entry ").count());
    Ok(())
}

/// Panics if PTX was compiled from other sources than those of now. It is for a test of the crate of the kernels.
///
/// # Panics
///
/// With the source that has changed, and what to run.
#[track_caller]
pub fn assert_current(folder: impl AsRef<Path>, file: impl AsRef<Path>) {
    let (folder, file) = (folder.as_ref(), file.as_ref());
    if let Err(why) = check(folder, file) {
        panic!("{}: {why}: compile it again, by `cargo ptx` or `cargo run --example ptx`", file.display());
    }
}

/// Compares PTX with its sources.
fn check(folder: &Path, file: &Path) -> Result<(), String> {
    let text = fs::read_to_string(folder.join(file)).map_err(|why| at(file, &why))?;
    let with = text.lines().find_map(|line| line.strip_prefix(WITH));
    let Some(version) = with else { return Err("it does not say from what it was compiled".to_owned()) };
    if version != env!("CARGO_PKG_VERSION") {
        return Err(format!(
            "it was compiled with interop-kernel {version}, and this is {}",
            env!("CARGO_PKG_VERSION")
        ));
    }
    for line in text.lines().filter_map(|line| line.strip_prefix(OF)) {
        let (source, recorded) = line.rsplit_once(' ').unwrap_or((line, ""));
        if checksum(&folder.join(source)).is_ok_and(|now| now == recorded) {
            continue;
        }
        return Err(format!("`{source}` has changed since it was compiled"));
    }
    Ok(())
}

fn at(path: &Path, why: &dyn core::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

/// Asks the compiler.
fn ask(arguments: &[&str]) -> Result<String, String> {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).args(arguments).output().map_err(|why| format!("rustc: {why}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder);
    cargo
}

/// Returns the folder for what is built, beside that of the host, which the command that runs this may hold.
fn target_folder(folder: &Path) -> Result<PathBuf, String> {
    let root = workspace(folder)?;
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    // One for each crate of kernels, so that what cargo records there is of this one.
    let own = folder.file_name().unwrap_or_default().to_string_lossy();
    Ok(target.join("ptx").join(&*own))
}

/// Returns the folder of the workspace.
fn workspace(folder: &Path) -> Result<PathBuf, String> {
    let mut command = cargo(folder);
    let output = command.args(["locate-project", "--workspace", "--message-format=plain"]).output();
    let output = output.map_err(|why| format!("cargo: {why}"))?;
    let manifest = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    manifest.parent().map(Path::to_owned).ok_or_else(|| "cargo finds no workspace".to_owned())
}

/// Runs the compiler, and returns the PTX.
fn run(folder: &Path, target: &Path) -> Result<String, String> {
    let ptx = target.join("kernels.ptx");
    fs::create_dir_all(target).map_err(|why| at(target, &why))?;
    // If a file that is there were not written again, it would be that of another crate.
    fs::write(&ptx, "").map_err(|why| at(&ptx, &why))?;
    let mut command = cargo(folder);
    for setting in PROFILE {
        command.args(["--config", setting]);
    }
    command.args(["rustc", "--lib", "--profile=ptx", "-Zbuild-std=core", "--target=nvptx64-nvidia-cuda"]);
    command.arg("--crate-type=cdylib").arg("--target-dir").arg(target);
    command
        .args(["--", "-Ctarget-cpu=sm_70", "-Zno-link"])
        .arg(format!("--emit=dep-info,asm={}", ptx.display()));
    // What a user has set for the host is not for this target.
    command.env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = command.status().map_err(|why| format!("cargo: {why}"))?;
    if !status.success() {
        return Err(HINT.to_owned());
    }
    fs::read_to_string(&ptx).map_err(|why| at(&ptx, &why))
}

/// Returns the sources in the workspace, from the folder of the package on: those that cargo has recorded for the next build.
fn sources(folder: &Path, target: &Path) -> Result<Vec<String>, String> {
    let root = workspace(folder)?;
    let built = target.join("nvptx64-nvidia-cuda/ptx");
    let files = fs::read_dir(&built).map_err(|why| at(&built, &why))?;
    let record = files
        .filter_map(|file| Some(file.ok()?.path()))
        .find(|file| file.extension().is_some_and(|extension| extension == "d"))
        .ok_or_else(|| format!("{}: cargo has recorded no sources", built.display()))?;
    let text = fs::read_to_string(&record).map_err(|why| at(&record, &why))?;
    let (_, list) = text.split_once(": ").ok_or_else(|| format!("{}: no list", record.display()))?;
    // A space in a path is written behind a backslash.
    let list = list.trim().replace("\\ ", "\0");
    let mut sources: Vec<String> = list
        .split(' ')
        .map(|source| PathBuf::from(source.replace('\0', " ")))
        .filter(|source| source.starts_with(&root) && !source.starts_with(target))
        .map(|source| from(folder, &source))
        .collect();
    sources.sort();
    Ok(sources)
}

/// Returns a path from a folder on, with slashes.
fn from(folder: &Path, path: &Path) -> String {
    let (own, other): (Vec<_>, Vec<_>) = (folder.components().collect(), path.components().collect());
    let common = own.iter().zip(&other).take_while(|(own, other)| own == other).count();
    let up = own[common..].iter().map(|_| "..".to_owned());
    let down = other[common..].iter().map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

/// Returns a checksum (FNV-1a) of a file, in which line ends do not count.
fn checksum(file: &Path) -> Result<String, String> {
    let bytes = fs::read(file).map_err(|why| at(file, &why))?;
    let sum = bytes.iter().filter(|byte| **byte != b'\r').fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    Ok(format!("{sum:016x}"))
}

#[cfg(test)]
mod tests {
    use super::{check, checksum, from};
    use std::path::Path;
    use std::{env, fs};

    #[test]
    fn a_source_that_has_changed_is_named() {
        let folder = env::temp_dir().join(format!("interop-kernel-ptx-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).expect("a folder");
        let (source, ptx) = (folder.join("src/lib.rs"), Path::new("kernels.ptx"));
        let write = |with: &str| {
            let text = format!(
                "// Compiled by rustc 1.0\n{with}// of src/lib.rs {}\n",
                checksum(&source).expect("a source")
            );
            fs::write(folder.join(ptx), text).expect("a file");
        };
        let own = format!("// with interop-kernel {}\n", env!("CARGO_PKG_VERSION"));
        assert!(check(&folder, ptx).expect_err("no PTX").contains("kernels.ptx"));
        fs::write(&source, "fn one() {}\n").expect("a file");
        write(&own);
        assert_eq!(check(&folder, ptx), Ok(()));
        fs::write(&source, "fn one() {}\r\n").expect("a file");
        assert_eq!(check(&folder, ptx), Ok(()), "line ends do not count");
        fs::write(&source, "fn two() {}\n").expect("a file");
        let changed = "`src/lib.rs` has changed since it was compiled";
        assert_eq!(check(&folder, ptx).expect_err("another source"), changed);
        fs::remove_file(&source).expect("the file");
        assert_eq!(check(&folder, ptx).expect_err("no source"), changed);
        fs::write(&source, "").expect("a file");
        write("// with interop-kernel 0.0.0\n");
        assert!(
            check(&folder, ptx).expect_err("a version").contains("with interop-kernel 0.0.0, and this is")
        );
        write("");
        assert_eq!(check(&folder, ptx).expect_err("nothing"), "it does not say from what it was compiled");
        fs::remove_dir_all(&folder).expect("the folder");
    }

    #[test]
    fn a_path_begins_at_the_folder() {
        let folder = Path::new("/waves/kernels");
        assert_eq!(from(folder, Path::new("/waves/kernels/src/lib.rs")), "src/lib.rs");
        assert_eq!(from(folder, Path::new("/waves/numbers/src/lib.rs")), "../numbers/src/lib.rs");
    }
}
