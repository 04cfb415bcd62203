//! The tests in Miri, which knows of every pointer what it was made from and what it may reach.

use std::process::Command;

use super::build::{CANARY, must_fail};
use crate::counts::Counts;
use crate::failure::Failure;
use crate::{sim, step, suites, tools, workspace};

/// The rooms in which memory is packed, handed over and released. The others take hours.
const ROOMS: [&str; 3] = ["dlpack::", "ndarrays::", "storage::"];

/// Addresses go through both protocols as numbers, and come back as pointers to what was exposed.
const FLAGS: &str = "-Zmiri-permissive-provenance";

/// Runs the rooms, once Miri has found what it is there for: a pointer that was made from one field and reaches another.
pub(super) fn run(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    let setup = step::ask(miri("setup").arg("--print-sysroot")).ok_or_else(|| {
        Failure::new("Miri is missing: `rustup component add miri rust-src --toolchain nightly`")
    })?;
    let canary = |fault| {
        let mut program = tools::nightly("miri");
        program.args(["--edition=2024", FLAGS, "--sysroot", &setup, CANARY, "--", fault]);
        program
    };
    step::run(&mut canary("none"))?;
    must_fail(&mut canary("narrow"))?;
    let mut tests = miri("test");
    tests.args(["--locked", "--package=interop-tests", "--test=runtime", "--target-dir"]);
    tests.arg(workspace::target().join("sanitize/miri")).env("MIRIFLAGS", FLAGS).arg("--").args(ROOMS);
    suites::follow(sim::hidden(&mut tests), counts)
}

/// A command of Miri's.
fn miri(word: &str) -> Command {
    let mut cargo = tools::nightly("cargo");
    cargo.args(["miri", word]);
    cargo
}
