//! Programs and modules with a checker in them, and the proof that it finds something.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::MEMCHECK;
use crate::failure::Failure;
use crate::{command_step, files, tools, workspace};

/// The target that is named, so that the sanitizer goes into what runs and not into what runs at compile time.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The program with the faults.
pub(super) const CANARY: &str = "xtask/src/sanitize/canary.rs";

/// A sanitizer of the nightly compiler.
#[derive(Clone, Copy)]
pub(super) enum Sanitizer {
    Address,
    Thread,
    /// None: valgrind needs nothing in the program.
    None,
}

impl Sanitizer {
    /// As the compiler calls it, which is also its folder.
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
            Self::None => "none",
        }
    }

    /// What the compiler is told.
    fn flags(self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Address => vec!["-Zsanitizer=address".into()],
            // A library finds the sanitizer of the program that loads it.
            Self::Thread => vec!["-Zsanitizer=thread".into(), "-Clink-arg=-rdynamic".into()],
        }
    }

    /// The folder for everything with this sanitizer in it.
    fn folder(self) -> PathBuf {
        workspace::target().join("sanitize").join(self.name())
    }

    /// The nightly cargo, building with the sanitizer.
    pub(super) fn cargo(self, command: &str) -> Result<Command, Failure> {
        let mut cargo = tools::nightly("cargo");
        cargo.args([command, "--locked", "--target", TARGET, "--target-dir"]).arg(self.folder());
        cargo.env("RUSTFLAGS", self.flags().join(" "));
        // A request that cannot be met is an answer of the allocator here, and no reason to stop.
        cargo.env("ASAN_OPTIONS", "allocator_may_return_null=1");
        // Tests fork beside other threads, and the child makes its own.
        cargo.env("TSAN_OPTIONS", "allocator_may_return_null=1:die_after_fork=0");
        if matches!(self, Self::Thread) {
            // The orders that the standard library makes would not be seen otherwise.
            need_sources()?;
            cargo.arg("-Zbuild-std");
        }
        Ok(cargo)
    }

    /// The place of something that was built.
    pub(super) fn built(self, file: &str) -> PathBuf {
        self.folder().join(TARGET).join("debug").join(file)
    }
}

/// A variable that configures cargo for [`TARGET`].
pub(super) fn variable(name: &str) -> String {
    format!("CARGO_TARGET_{}_{name}", TARGET.to_uppercase().replace('-', "_"))
}

/// Sees that a fault of this kind is found, and that nothing is found in the same program without it.
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
        // Its standard library is the one that comes with the compiler, which the compiler would refuse.
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

/// Runs a program with a fault in it, quietly; that it ends well is a failure.
pub(super) fn must_fail(command: &mut Command) -> Result<(), Failure> {
    match command_step::ask(command) {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("`{command:?}` has a fault that was not found"))),
    }
}

/// A folder with the extension as Python finds it.
pub(super) fn module(library: &Path, name: &str) -> Result<PathBuf, Failure> {
    let folder = workspace::target().join("sanitize/python").join(name);
    files::copy(library, &folder.join("interop_demo.abi3.so"))?;
    Ok(folder)
}

/// The runtime of the address sanitizer as a library that is loaded before all others. The compiler brings it as an
/// archive for programs; the piece that only programs may have is left out.
pub(super) fn address_runtime() -> Result<PathBuf, Failure> {
    let ours = workspace::target().join("sanitize/python/asan.a");
    let archive = sysroot()?.join("lib/rustlib").join(TARGET).join("lib/librustc-nightly_rt.asan.a");
    files::copy(&archive, &ours)?;
    command_step::run(Command::new("ar").arg("d").arg(&ours).arg("asan_preinit.cpp.o"))?;
    // Not `libasan.so`: the runtime takes that for the one of another compiler.
    let library = ours.with_file_name("libsanitizer.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-Wl,--whole-archive"]).arg(&ours).arg("-Wl,--no-whole-archive");
    // C++ libraries throw through it, so the language's own runtime must be there before they are.
    cc.args(["-Wl,--no-as-needed", "-lstdc++", "-lpthread", "-ldl", "-lm", "-lrt", "-o"]).arg(&library);
    command_step::run(&mut cc)?;
    Ok(library)
}

/// Fails where the standard library cannot be built.
fn need_sources() -> Result<(), Failure> {
    let sources = sysroot()?.join("lib/rustlib/src/rust/library/Cargo.lock");
    if sources.is_file() {
        return Ok(());
    }
    let install = "`rustup component add rust-src --toolchain nightly`";
    Err(Failure::new(format!("the sources of the standard library are missing: {install}")))
}

/// The folder of the nightly toolchain.
fn sysroot() -> Result<PathBuf, Failure> {
    let folder = command_step::ask(tools::nightly("rustc").args(["--print", "sysroot"]));
    folder.map(PathBuf::from).ok_or_else(|| Failure::new("the nightly compiler does not tell where it is"))
}
