//! The tests in Miri, which knows of every pointer what it was made from and what it may reach.

use std::process::Command;

use super::build::{CANARY, must_fail};
use crate::failure::Failure;
use crate::test_counts::Counts;
use crate::{command_step, sim, suites, tools, workspace};

/// The tests of the runtime, but for those that only compute, in thousands of cases.
const RUNTIME: [&str; 7] =
    ["--package=interop-tests", "--test=runtime", "--", "--skip", "conformance::", "--skip", "dtype::"];

/// The derived structs.
const DERIVE: [&str; 2] = ["--package=interop-tests", "--test=derive"];

/// What counts bits and bytes, once more where an address has 32 bits.
const NARROW: [&str; 5] =
    ["--package=interop-core", "--lib", "--target=i686-unknown-linux-gnu", "--", "a_gigabyte"];

/// What Stacked Borrows, the older of the two models of Miri's, refuses.
const TREE_BORROWS: [&str; 5] =
    ["--package=interop-tests", "--test=runtime", "--", "--ignored", "borrowed_slices_have_cells"];

/// Addresses go through both protocols as numbers, and come back as pointers to what was exposed.
const FLAGS: &str = "-Zmiri-permissive-provenance";

/// Runs the tests, once Miri has found what it is there for: a pointer that was made from one field and reaches another.
pub(super) fn run(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    let setup = command_step::ask(miri("setup").arg("--print-sysroot")).ok_or_else(|| {
        Failure::new("Miri is missing: `rustup component add miri rust-src --toolchain nightly`")
    })?;
    let canary = |fault| {
        let mut program = tools::nightly("miri");
        program.args(["--edition=2024", FLAGS, "--sysroot", &setup, CANARY, "--", fault]);
        program
    };
    command_step::run(&mut canary("none"))?;
    must_fail(&mut canary("narrow"))?;
    let tree = format!("{FLAGS} -Zmiri-tree-borrows");
    let tests = [(FLAGS, &RUNTIME[..]), (FLAGS, &DERIVE), (FLAGS, &NARROW), (&tree, &TREE_BORROWS)];
    tests.into_iter().try_for_each(|(flags, arguments)| {
        let mut tests = miri("test");
        tests.args(["--locked", "--no-fail-fast", "--target-dir"]);
        tests.arg(workspace::target().join("sanitize/miri")).env("MIRIFLAGS", flags).args(arguments);
        suites::follow(sim::hidden(&mut tests), counts)
    })
}

/// A command of Miri's.
fn miri(word: &str) -> Command {
    let mut cargo = tools::nightly("cargo");
    cargo.args(["miri", word]);
    cargo
}
