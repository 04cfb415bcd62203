//! `cargo xtask guard`: checks what the published packages promise to their users.
//!
//! The lint `incompatible_msrv` of `cargo clippy` knows since which version each item of the standard library exists.
//! For the language itself (`let text = format_args!(…)`, since 1.89) only the oldest compiler can tell.
//!
//! The public items are recorded in a file, whose changes are reviewed. `release` asks cargo-semver-checks which version a
//! release needs.

use std::process::Command;

use crate::failure::Failure;
use crate::published::{each_package, published};
use crate::suite::{self, Suite};
use crate::test_counts::Counts;
use crate::test_runs::follow;
use crate::tools::{self, Tool};
use crate::{checklists, command_step, files, packages, public_items, release, sim, workspace};

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// It takes a second, and `cargo xtask test` runs it as a test too.
const LISTS: Suite = Suite {
    word: "lists",
    name: "Lists of places",
    why: "What a new keyword, element type, storage and so on touches is listed where one starts to add it.",
    run: checklists::check,
};

const SUITES: [Suite; 11] = [
    Suite {
        word: "packages",
        name: "Packages",
        why: "What would be published from the last commit passes its own tests and is documented as docs.rs does it, \
              from its archives alone.",
        run: packages::run,
    },
    Suite {
        word: "api",
        name: "Public items",
        why: "What users can name is what `public-api.txt` of the package records.",
        run: |counts| {
            tools::need_nightly()?;
            public_items::compare(counts)
        },
    },
    release::VERSIONS,
    release::PUBLICATION,
    Suite {
        word: "features",
        name: "Sets of features",
        why: "The core compiles with every set of its features, not only with each alone and with all.",
        run: feature_sets,
    },
    Suite {
        word: "compiler",
        name: "Oldest compiler",
        why: "Both packages compile with the version of Rust that they promise.",
        run: oldest_compiler,
    },
    Suite {
        word: "platforms",
        name: "Other platforms",
        why: "The core and the crate of functions compile for Windows and macOS, and clippy finds nothing that is of one platform only.",
        run: platforms,
    },
    Suite {
        word: "classes",
        name: "Python classes",
        why: "What the compiler says about structs that cannot be the Python objects or classes that they should be.",
        run: |counts| {
            sim::build()?;
            let test = ["test", "--locked", "--package=interop-class-tests", "--tests"];
            follow(sim::on_path(&mut workspace::cargo(test)), counts)
        },
    },
    LISTS,
    Suite {
        word: "minimal",
        name: "Oldest dependencies",
        why: "Both packages compile with the oldest version of every dependency that the manifests allow.",
        run: oldest_dependencies,
    },
    Suite {
        word: "deny",
        name: "Dependencies",
        why: "Licences, banned crates and sources, as `deny.toml` has them; advisories need a network and are not here.",
        run: |counts| {
            DENY.install()?;
            command_step::run(DENY.command().args(["--offline", "check", "licenses", "bans", "sources"]))?;
            counts.passed = 3;
            Ok(())
        },
    },
];

/// Runs the checks named in `arguments`, or all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    suite::choose(&SUITES, arguments)
}

/// Compiles the core with every combination of its features.
fn feature_sets(counts: &mut Counts) -> Result<(), Failure> {
    sim::build()?;
    for set in 0..1_usize << workspace::FEATURES.len() {
        let chosen = workspace::FEATURES.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
        let chosen = chosen.map(|(_, feature)| *feature).collect::<Vec<_>>().join(",");
        let mut cargo = workspace::cargo(["check", "--quiet", "--locked", "--package=interop-core"]);
        cargo.args(["--no-default-features", "--features", &chosen]).env("RUSTFLAGS", "-D warnings");
        // The flags differ from other builds, so a separate folder keeps those builds valid.
        command_step::run(cargo.arg("--target-dir").arg(workspace::target().join("guard/features")))?;
        counts.passed += 1;
    }
    too_old_a_python(counts)
}

/// Checks that an extension for a Python that is too old gets one error, which names the cure.
fn too_old_a_python(counts: &mut Counts) -> Result<(), Failure> {
    let mut cargo = workspace::cargo(["check", "--quiet", "--locked", "--package=interop-core"]);
    cargo.arg("--features=python,pyo3/abi3-py310");
    cargo.arg("--target-dir").arg(workspace::target().join("guard/features"));
    let output = cargo.output().map_err(|error| Failure::new(format!("cargo: {error}")))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let is_error = |line: &&str| line.starts_with("error") && !line.starts_with("error: could not compile");
    let errors: Vec<&str> = text.lines().filter(is_error).collect();
    match errors[..] {
        [error] if error.contains("write `abi3-py311`") => {
            counts.passed += 1;
            Ok(())
        }
        _ => {
            Err(Failure::new(format!("an extension with `abi3-py310` gets {} errors:\n{text}", errors.len())))
        }
    }
}

/// Returns the minimum Rust version that the packages promise.
fn promised() -> Result<String, Failure> {
    let manifest = files::read(&workspace::root().join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.ok_or_else(|| Failure::new("Cargo.toml has no `rust-version`"))?;
    Ok(version.trim_matches('"').to_owned())
}

/// Installs the oldest compiler, unless it is there.
fn install_oldest(version: &str) -> Result<(), Failure> {
    if command_step::ask(tools::of_toolchain(version, "rustc").arg("--version")).is_some() {
        return Ok(());
    }
    command_step::announce(
        &format!("Rust {version}"),
        "From rust-lang.org, the first time only, beside the compilers that are installed.",
    );
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", version, "--profile", "minimal", "--no-self-update"]);
    command_step::run(&mut install)
}

/// Compiles both packages with the oldest compiler, except the `cudarc` adapter, whose dependencies need a newer one.
pub(crate) fn oldest_compiler(counts: &mut Counts) -> Result<(), Failure> {
    let version = promised()?;
    install_oldest(&version)?;
    sim::build()?;
    let mut cargo = tools::of_toolchain(&version, "cargo");
    cargo.args(["check", "--locked"]).args(each_package()?);
    cargo.arg(workspace::features_but(&["cudarc"]));
    command_step::run(cargo.arg("--target-dir").arg(workspace::target().join("guard/compiler")))?;
    counts.passed = 1;
    Ok(())
}

/// Platforms that the tests do not run on. They differ in the sizes of `c_long` and pointers, and in symbol lookup.
const PLATFORMS: [&str; 3] = ["x86_64-pc-windows-msvc", "i686-pc-windows-msvc", "aarch64-apple-darwin"];

/// Checks the core and the crate of functions for other platforms, as far as this is possible without their linkers.
fn platforms(counts: &mut Counts) -> Result<(), Failure> {
    let installed = command_step::ask(Command::new("rustup").args(["target", "list", "--installed"]));
    let installed = installed.unwrap_or_default();
    if PLATFORMS.iter().any(|platform| !installed.contains(platform)) {
        let advice = format!("rustup target add {}", PLATFORMS.join(" "));
        return Err(Failure::new(format!("a standard library is missing: `{advice}`")));
    }
    for platform in PLATFORMS {
        let mut cargo = workspace::cargo([
            "clippy",
            "--quiet",
            "--locked",
            "--package=interop-core",
            "--package=interop-tvm-ffi",
        ]);
        // PyO3 needs no interpreter of that platform for the stable ABI.
        cargo.arg(workspace::features_but(&["cust", "cudarc"])).arg("--features=pyo3/abi3-py311");
        cargo.args(["--target", platform]).env("PYO3_NO_PYTHON", "1");
        cargo.arg("--target-dir").arg(workspace::target().join("guard/platforms"));
        command_step::run(cargo.args(["--", "-D", "warnings"]))?;
        counts.passed += 1;
    }
    Ok(())
}

/// Compiles both packages, in a separate workspace, with the oldest dependencies that their manifests allow.
fn oldest_dependencies(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    let place = workspace::target().join("guard/oldest");
    // Files of an earlier run would interfere.
    files::clear(&place)?;
    let published = published()?;
    for package in &published {
        files::copy_all(&workspace::root().join(package), &place.join(package))?;
    }
    let manifest = files::read(&workspace::root().join("Cargo.toml"))?;
    let others = |line: &&str| !line.starts_with("members") && !line.starts_with("default-members");
    let manifest = manifest.lines().filter(others).collect::<Vec<_>>().join("\n");
    let manifest = manifest.replacen("[workspace]", &format!("[workspace]\nmembers = {published:?}"), 1);
    files::write(&place.join("Cargo.toml"), manifest)?;
    let mut lock = tools::nightly("cargo");
    command_step::run(lock.args(["generate-lockfile", "-Zminimal-versions"]).current_dir(&place))?;
    let mut check = workspace::cargo(["check", "--locked", "--workspace"]);
    // Without `cust`: the oldest helper of its build script needs a CUDA toolkit, which the newest one does not.
    check.arg(workspace::features_but(&["cust"]));
    check.arg("--target-dir").arg(place.with_file_name("oldest-build")).current_dir(&place);
    command_step::run(&mut check)?;
    counts.passed = published.len() as u64;
    Ok(())
}
