//! Builds instrumented programs and modules, and checks that a known fault is found.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{command_step, files, tools, workspace};

/// An explicit target, so that the sanitizer applies to the programs and not to build scripts and macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The program with the faults.
pub(super) const CANARY: &str = "xtask/src/sanitize/canary.rs";

/// The valgrind options. An error ends the program with an exit code of its own.
pub(super) const MEMCHECK: [&str; 6] = [
    "--quiet",
    "--error-exitcode=99",
    "--trace-children=yes",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
];

/// A sanitizer of the nightly compiler.
#[derive(Clone, Copy)]
pub(super) enum Sanitizer {
    Address,
    Thread,
    /// No instrumentation: valgrind needs none.
    None,
}

impl Sanitizer {
    /// The compiler's name for it, which is also the name of its folder.
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
            Self::None => "none",
        }
    }

    /// The compiler flags.
    fn flags(self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Address => vec!["-Zsanitizer=address".into()],
            // A library uses the sanitizer runtime of the program that loads it.
            Self::Thread => vec!["-Zsanitizer=thread".into(), "-Clink-arg=-rdynamic".into()],
        }
    }

    /// Returns the folder for everything that is built with this sanitizer.
    fn folder(self) -> PathBuf {
        workspace::target().join("sanitize").join(self.name())
    }

    /// Returns the nightly cargo, configured to build with the sanitizer.
    pub(super) fn cargo(self, command: &str) -> Result<Command, Failure> {
        let mut cargo = tools::nightly("cargo");
        cargo.args([command, "--locked", "--target", TARGET, "--target-dir"]).arg(self.folder());
        cargo.env("RUSTFLAGS", self.flags().join(" "));
        // The tests expect an allocation that is too large to return null instead of aborting.
        cargo.env("ASAN_OPTIONS", "allocator_may_return_null=1");
        // Tests fork while other threads run, and the child creates threads of its own.
        cargo.env("TSAN_OPTIONS", "allocator_may_return_null=1:die_after_fork=0");
        if matches!(self, Self::Thread) {
            // Otherwise the sanitizer would not see synchronization inside the standard library.
            need_sources()?;
            cargo.arg("-Zbuild-std");
        }
        Ok(cargo)
    }

    /// Returns the path of a build result.
    pub(super) fn built(self, file: &str) -> PathBuf {
        self.folder().join(TARGET).join("debug").join(file)
    }
}

/// Returns the name of a variable that configures cargo for [`TARGET`].
pub(super) fn variable(name: &str) -> String {
    format!("CARGO_TARGET_{}_{name}", TARGET.to_uppercase().replace('-', "_"))
}

/// Checks that this fault is found, and that nothing is found in the same program without it.
pub(super) fn must_find(sanitizer: Sanitizer, fault: &str) -> Result<(), Failure> {
    let folder = workspace::target().join("sanitize");
    files::make(&folder)?;
    let program = folder.join(format!("canary-{}", sanitizer.name()));
    let mut rustc = match sanitizer {
        // The compiler that the tests are built with.
        Sanitizer::None => Command::new("rustc"),
        Sanitizer::Address | Sanitizer::Thread => tools::nightly("rustc"),
    };
    rustc.args(["--edition=2024", "--target", TARGET, "-Cdebuginfo=1"]).args(sanitizer.flags());
    if matches!(sanitizer, Sanitizer::Thread) {
        // This program uses the uninstrumented standard library of the compiler, which rustc would reject otherwise.
        rustc.arg("-Cunsafe-allow-abi-mismatch=sanitizer");
    }
    rustc.arg("-o").arg(&program).arg(workspace::root().join(CANARY));
    command_step::run(&mut rustc)?;
    let run = |fault| {
        let mut command = match sanitizer {
            Sanitizer::None => Command::new("valgrind"),
            Sanitizer::Address | Sanitizer::Thread => Command::new(&program),
        };
        if matches!(sanitizer, Sanitizer::None) {
            command.args(MEMCHECK).arg(&program);
        }
        command.arg(fault);
        command
    };
    command_step::run(&mut run("none"))?;
    must_fail(&mut run(fault))
}

/// Runs a program with a fault quietly. Fails if the program succeeds.
pub(super) fn must_fail(command: &mut Command) -> Result<(), Failure> {
    match command_step::ask(command) {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("`{command:?}` has a fault that was not found"))),
    }
}

/// Creates a folder in which Python finds the extension.
pub(super) fn module(library: &Path, name: &str) -> Result<PathBuf, Failure> {
    let folder = workspace::target().join("sanitize/python").join(name);
    files::copy(library, &folder.join("interop_demo.abi3.so"))?;
    Ok(folder)
}

/// Builds the runtime of the address sanitizer as a library that is loaded before all others.
///
/// The compiler provides it as an archive for programs. The part that only programs may contain is removed.
pub(super) fn address_runtime() -> Result<PathBuf, Failure> {
    let ours = workspace::target().join("sanitize/python/asan.a");
    let archive = sysroot()?.join("lib/rustlib").join(TARGET).join("lib/librustc-nightly_rt.asan.a");
    files::copy(&archive, &ours)?;
    command_step::run(Command::new("ar").arg("d").arg(&ours).arg("asan_preinit.cpp.o"))?;
    // Not `libasan.so`, because the runtime would take that for the runtime of another compiler.
    let library = ours.with_file_name("libsanitizer.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-Wl,--whole-archive"]).arg(&ours).arg("-Wl,--no-whole-archive");
    // C++ libraries throw exceptions through it, so the C++ runtime must be loaded before them.
    cc.args(["-Wl,--no-as-needed", "-lstdc++", "-lpthread", "-ldl", "-lm", "-lrt", "-o"]).arg(&library);
    command_step::run(&mut cc)?;
    Ok(library)
}

/// Fails if the sources of the standard library are missing.
fn need_sources() -> Result<(), Failure> {
    let sources = sysroot()?.join("lib/rustlib/src/rust/library/Cargo.lock");
    if sources.is_file() {
        return Ok(());
    }
    let install = "`rustup component add rust-src --toolchain nightly`";
    Err(Failure::new(format!("the sources of the standard library are missing: {install}")))
}

/// Returns the folder of the nightly toolchain.
fn sysroot() -> Result<PathBuf, Failure> {
    let folder = command_step::ask(tools::nightly("rustc").args(["--print", "sysroot"]));
    folder.map(PathBuf::from).ok_or_else(|| Failure::new("the nightly compiler does not tell where it is"))
}
