//! Kernels in Rust: compiles them to the PTX beside their source.
//!
//! rustc writes PTX as the assembly of its target `nvptx64-nvidia-cuda`, so there is nothing to link. The standard library's `core`
//! is compiled too, which needs a nightly, or a stable compiler that is told to behave like
//! one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{command_step, files, templates, tools, workspace};

/// A crate of kernels.
struct Kernels {
    /// Its folder in the workspace.
    folder: &'static str,
    /// The PTX, from that folder.
    ptx: &'static str,
    /// The template of which it is a part: a project of its own, which is compiled where it is copied to.
    template: Option<&'static str>,
}

/// The crates. To add another one, add a line here.
const CRATES: [Kernels; 6] = [
    Kernels { folder: "interop-core/kernels", ptx: "../src/memory/copy/copy.ptx", template: None },
    Kernels { folder: "examples/kernels", ptx: "ptx/kernels.ptx", template: None },
    Kernels { folder: "examples/py-extension/kernels", ptx: "kernels.ptx", template: None },
    Kernels { folder: "examples/relu/kernels", ptx: "kernels.ptx", template: None },
    Kernels { folder: "examples/hello-cuda/kernels", ptx: "kernels.ptx", template: Some("hello-cuda") },
    Kernels {
        folder: "examples/hello-functions/kernels",
        ptx: "kernels.ptx",
        template: Some("hello-functions"),
    },
];

/// What else the PTX depends on.
const SHARED: [&str; 3] = ["interop-kernel/src", "interop-derive/src/kernel.rs", "interop-derive/src/kernel"];

/// The first lines of a PTX file, before what rustc writes.
const BY: &str = "// Compiled by rustc ";
const FROM: &str = "// from sources with the checksum ";

/// The profile of the compilation, as `interop_kernel::ptx` has it.
const PROFILE: [&str; 5] = [
    "profile.ptx.inherits=\"release\"",
    "profile.ptx.codegen-units=1",
    "profile.ptx.debug=false",
    "profile.ptx.lto=\"fat\"",
    "profile.ptx.panic=\"abort\"",
];

/// What to do about the mistakes that only this target finds.
const HINT: &str = "a GPU has no `std`. If a crate does not compile: write `default-features = false` for it; of `half` use \
                    `interop_kernel::half`. If a float has no method such as `sqrt`: use `interop_kernel::math`, or the crate `libm`.";

/// What to do about arrays that are not in registers.
const LOCAL: &str =
    "an array that a thread indexes by a variable lies in memory; write constant indices, or `unrolled!`";

/// Drops the comments and the empty lines, which are a twentieth.
fn instructions(ptx: &str) -> String {
    let is_kept = |line: &&str| !line.is_empty() && !line.trim_start().starts_with("//");
    ptx.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect()
}

/// A compiler that can compile kernels.
struct Compiler {
    /// `None` for the one that runs xtask.
    toolchain: Option<&'static str>,
    /// `1.95.0 (59807616e 2026-04-14)`.
    version: String,
}

impl Compiler {
    /// Returns the compiler that runs xtask, or else a nightly, whichever has the sources of `core`.
    fn find() -> Result<Self, Failure> {
        let known = [None, Some("nightly")].map(Self::known);
        known.into_iter().flatten().next().ok_or_else(|| {
            Failure::new(
                "no compiler has the sources of `core`, which kernels need: `rustup component add rust-src`, for this \
                 toolchain or with `--toolchain nightly`",
            )
        })
    }

    fn known(toolchain: Option<&'static str>) -> Option<Self> {
        let ask = |argument| command_step::ask(Self::program(toolchain, "rustc").args(argument));
        let (version, sysroot) = (ask(&["--version"])?, ask(&["--print=sysroot"])?);
        let library = Path::new(&sysroot).join("lib/rustlib/src/rust/library/core/Cargo.toml");
        let version = version.strip_prefix("rustc ").unwrap_or(&version).to_owned();
        library.is_file().then_some(Self { toolchain, version })
    }

    fn program(toolchain: Option<&'static str>, name: &str) -> Command {
        match toolchain {
            Some(toolchain) => tools::of_toolchain(toolchain, name),
            None if name == "cargo" => workspace::cargo([] as [&str; 0]),
            None => Command::new(name),
        }
    }

    /// Returns the PTX of a crate.
    fn compile(&self, kernels: &Kernels, variables: &[(&str, &str)]) -> Result<String, Failure> {
        let (root, to) = (workspace::root(), workspace::target().join("ptx/kernels.ptx"));
        files::write(&to, "")?;
        let mut cargo = Self::program(self.toolchain, "cargo");
        for setting in PROFILE {
            cargo.args(["--config", setting]);
        }
        cargo.args(["rustc", "--lib", "--profile=ptx", "-Zbuild-std=core", "--target=nvptx64-nvidia-cuda"]);
        let folder = match kernels.template {
            Some(template) => templates::sources(template)?.join("kernels"),
            None => root.join(kernels.folder),
        };
        cargo.args(["--crate-type=cdylib", "--manifest-path"]).arg(folder.join("Cargo.toml"));
        cargo.arg("--target-dir").arg(workspace::target().join("ptx"));
        cargo.args(["--", "-Ctarget-cpu=sm_70", "-Zno-link"]).arg(format!("--emit=asm={}", to.display()));
        // What a user has set for the host is not for this target.
        cargo.envs(variables.iter().copied());
        cargo.env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        command_step::run(&mut cargo).map_err(|failure| Failure::new(format!("{failure}\n{HINT}")))?;
        let ptx = instructions(&files::read(&to)?);
        if ptx.contains(".local") {
            return Err(Failure::new(format!("a kernel in {} has local memory: {LOCAL}", kernels.folder)));
        }
        let checksum = checksum(&root, kernels.folder)?;
        Ok(format!("{BY}{}\n{FROM}{checksum}\n{}{ptx}", self.version, kernels.record()?))
    }
}

/// Returns the PTX of kernels whose PTX is not in the repository. Their build script has the variables.
pub(crate) fn compile(folder: &'static str, variables: &[(&str, &str)]) -> Result<String, Failure> {
    Compiler::find()?.compile(&Kernels { folder, ptx: "", template: None }, variables)
}

/// Writes the PTX of all crates.
pub(crate) fn build() -> Result<(), Failure> {
    let compiler = Compiler::find()?;
    for kernels in &CRATES {
        let ptx = compiler.compile(kernels, &[])?;
        println!("{:<30}{:>4} kernels", kernels.folder, ptx.matches(".entry ").count());
        files::write(&kernels.file(), ptx)?;
    }
    Ok(())
}

/// Checks that the PTX is what the sources compile to: byte for byte with the compiler that wrote it, else by the checksum of the
/// sources. Returns how many crates were compared.
pub(crate) fn check() -> Result<u64, Failure> {
    let mut wrong = String::new();
    let compiler = Compiler::find().ok();
    for kernels in &CRATES {
        let ptx = files::read(&kernels.file())?;
        let version = ptx.strip_prefix(BY).and_then(|ptx| ptx.lines().next()).unwrap_or_default();
        let is_same = match &compiler {
            Some(compiler) if compiler.version == version => compiler.compile(kernels, &[])? == ptx,
            _ => {
                println!("{}: compared by checksum, because rustc {version} wrote it", kernels.folder);
                kernels.has_checksum(&ptx)?
            }
        };
        if !is_same {
            let _ = writeln!(wrong, "{}/{} is not what its sources compile to", kernels.folder, kernels.ptx);
        }
    }
    if wrong.is_empty() {
        return Ok(CRATES.len() as u64);
    }
    Err(Failure::new(format!("{wrong}`cargo xtask ptx` writes these files anew")))
}

impl Kernels {
    fn file(&self) -> PathBuf {
        workspace::root().join(self.folder).join(self.ptx)
    }

    /// What a project has of the sources, for its own test: the lines that `interop_kernel::ptx::compile` writes.
    fn record(&self) -> Result<String, Failure> {
        if self.template.is_none() {
            return Ok(String::new());
        }
        let folder = workspace::root().join(self.folder);
        let mut record = format!("// with interop-kernel {}\n", env!("CARGO_PKG_VERSION"));
        let mut sources = files::entries(&folder.join("src"))?;
        sources.sort();
        for source in sources {
            let name = source.strip_prefix(&folder).unwrap_or(&source).to_string_lossy().replace('\\', "/");
            let _ = writeln!(record, "// of {name} {}", checksum_of(std::slice::from_ref(&source))?);
        }
        Ok(record)
    }

    fn has_checksum(&self, ptx: &str) -> Result<bool, Failure> {
        let recorded = ptx.lines().find_map(|line| line.strip_prefix(FROM));
        Ok(recorded == Some(&checksum(&workspace::root(), self.folder)?))
    }
}

/// Returns a checksum (FNV-1a) of the sources of a crate of kernels and of what it is compiled with.
fn checksum(root: &Path, folder: &str) -> Result<String, Failure> {
    let mut sources = Vec::new();
    let own = format!("{folder}/src");
    for part in SHARED.iter().chain([&own.as_str()]) {
        let path = root.join(part);
        if path.is_dir() { sources.extend(files::entries(&path)?) } else { sources.push(path) }
    }
    sources.sort();
    sources.retain(|source| source.extension().is_some_and(|extension| extension == "rs"));
    checksum_of(&sources)
}

/// Returns a checksum (FNV-1a) of files.
fn checksum_of(sources: &[PathBuf]) -> Result<String, Failure> {
    let mut sum = 0xCBF2_9CE4_8422_2325_u64;
    for source in sources {
        // Line ends differ where git converts them.
        for byte in files::read(source)?.bytes().filter(|byte| *byte != b'\r') {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
    Ok(format!("{sum:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This needs no compiler for kernels, so it runs everywhere.
    #[test]
    fn ptx_of_rust_kernels_has_the_checksum_of_its_sources() {
        for kernels in &CRATES {
            let ptx = files::read(&kernels.file()).expect("PTX beside the source");
            assert!(
                kernels.has_checksum(&ptx).expect("sources"),
                "{}: run `cargo xtask ptx`",
                kernels.folder
            );
        }
    }

    /// A project compiles its kernels by `interop_kernel::ptx`. This program has no dependencies, so it does not call it.
    #[test]
    fn the_profile_is_that_of_projects() {
        let text = files::read(&workspace::root().join("interop-kernel/src/ptx.rs")).expect("the source");
        let list = PROFILE.map(|setting| format!("    {setting:?},\n")).concat();
        assert!(text.contains(&format!("const PROFILE: [&str; {}] = [\n{list}];", PROFILE.len())), "{list}");
    }

    /// An array in local memory costs a device more than most kernels compute.
    #[test]
    fn no_thread_has_memory_of_its_own() {
        let ptxas = Command::new("ptxas").arg("--version").output().is_ok();
        for kernels in &CRATES {
            let ptx = files::read(&kernels.file()).expect("PTX beside the source");
            assert!(!ptx.contains(".local"), "{}: {LOCAL}", kernels.folder);
            if ptxas {
                let mut report = Command::new("ptxas");
                report.args(["-v", "-arch=sm_90", "-o"]).arg(workspace::target().join("ptx/assembled"));
                let report = report.arg(kernels.file()).output().expect("ptxas");
                let text = String::from_utf8_lossy(&report.stderr);
                let functions = text.matches("bytes stack frame").count();
                assert!(functions > 0 && report.status.success(), "{text}");
                let clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
                assert_eq!(text.matches(clean).count(), functions, "{}: {text}", kernels.folder);
            }
        }
    }
}
