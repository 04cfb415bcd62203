//! `cargo xtask bless`: rewrites the files that record what the derive says and writes.

use crate::failure::{Failure, no_arguments};
use crate::{step, workspace};

/// Rewrites the expected compiler messages and the expected expansions; what changed is for `git diff` to show.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("bless", arguments)?;
    step::announce("Expansions", "interop-derive/src/golden: what each kind of struct expands to.");
    step::run(workspace::cargo(["test", "--package=interop-derive", "--lib"]).env("BLESS", "1"))?;
    step::announce("Messages", "tests/ui/**/*.stderr: what the compiler says about each mistake.");
    step::run(
        workspace::cargo(["test", "--package=interop-tests", "--test=ui", "--", "--exact", "messages"])
            .env("TRYBUILD", "overwrite"),
    )?;
    println!("\nNow read `git diff`: every changed line must be one that you meant to change.");
    Ok(())
}
