//! `cargo xtask bless`: rewrites the recorded compiler messages, macro expansions and public items.

use crate::failure::Failure;
use crate::{command_step, public_items, sim, workspace};

/// Rewrites the expected compiler messages, the expected expansions and the public items, or the expansions alone.
/// Review the changes with `git diff`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let is_all = match arguments {
        [] => true,
        [word] if word == "expansions" => false,
        _ => return Err(Failure::usage("write `cargo xtask bless`, or `cargo xtask bless expansions`")),
    };
    command_step::announce("Expansions", "interop-derive/tests/golden: what each kind of struct expands to.");
    command_step::run(workspace::cargo(["test", "--package=interop-derive", "--lib"]).env("BLESS", "1"))?;
    if !is_all {
        return Ok(());
    }
    command_step::announce("Messages", "tests/**/*.stderr: what the compiler says about each mistake.");
    sim::build()?;
    let packages = [
        ("interop-tests", "ui"),
        ("interop-cuda-tests", "cuda-ui"),
        ("interop-class-tests", "class-ui"),
        ("interop-function-tests", "ui"),
    ];
    for (package, test) in packages {
        let mut messages = workspace::cargo(["test", "--package", package, "--test", test]);
        messages.args(["--", "--exact", "messages"]).env("TRYBUILD", "overwrite");
        command_step::run(sim::on_path(&mut messages))?;
    }
    command_step::announce("Public items", "*/public-api.txt: what users of the two packages can name.");
    public_items::bless()?;
    println!("\nNow read `git diff`: every changed line must be one that you meant to change.");
    Ok(())
}
