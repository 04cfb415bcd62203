//! Runs the tests in Miri, which tracks the provenance of every pointer.

use std::process::Command;

use crate::failure::Failure;
use crate::sanitize::build::{CANARY, must_fail};
use crate::test_counts::Counts;
use crate::{command_step, sim, test_runs, tools, workspace};

/// The tests of the runtime, except those that only compute thousands of cases.
const RUNTIME: [&str; 7] = [
    "--package=interop-runtime-tests",
    "--test=runtime",
    "--",
    "--skip",
    "conformance::",
    "--skip",
    "dtype::",
];

/// The tests of derived structs.
const DERIVE: [&str; 2] = ["--package=interop-tests", "--test=derive"];

/// Tests of private parts of the core: the state, the order and the record of memory.
const PRIVATE: [&str; 5] = ["--package=interop-core", "--lib", "--", "maybe_dangling::", "order::"];

/// The tests of bit and byte counts, repeated for 32-bit addresses.
const NARROW: [&str; 5] =
    ["--package=interop-core", "--lib", "--target=i686-unknown-linux-gnu", "--", "a_gigabyte"];

/// Kernels on the CPU, with one thread of the system for each thread of a block, or for each part of a launch: Miri finds their races.
const KERNELS: [&str; 5] =
    ["--package=interop-kernel", "--test=kernels", "--test=rows", "--test=host_launch", "--features=half"];

/// A test that Stacked Borrows, the older of Miri's two models, rejects.
const TREE_BORROWS: [&str; 5] =
    ["--package=interop-runtime-tests", "--test=runtime", "--", "--ignored", "borrowed_slices_have_cells"];

/// Both protocols pass addresses as integers, which are converted back to pointers with exposed provenance.
const FLAGS: &str = "-Zmiri-permissive-provenance";

/// Kernels on the CPU keep pointers.
const STRICT: &str = "-Zmiri-strict-provenance";

/// Runs the tests, after checking that Miri finds a pointer that was made from one field and accesses another.
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
    let tests = [
        (FLAGS, &RUNTIME[..]),
        (FLAGS, &DERIVE),
        (FLAGS, &PRIVATE),
        (FLAGS, &NARROW),
        (STRICT, &KERNELS),
        (&tree, &TREE_BORROWS),
    ];
    tests.into_iter().try_for_each(|(flags, arguments)| {
        let mut tests = miri("test");
        tests.args(["--locked", "--no-fail-fast", "--target-dir"]);
        tests.arg(workspace::target().join("sanitize/miri")).env("MIRIFLAGS", flags).args(arguments);
        test_runs::follow(sim::hidden(&mut tests), counts)
    })
}

/// Returns a Miri command.
fn miri(word: &str) -> Command {
    let mut cargo = tools::nightly("cargo");
    cargo.args(["miri", word]);
    cargo
}
