//! `cargo xtask demo`: passes a photograph between Python and Rust without copies.

use crate::failure::{Failure, no_arguments};
use crate::python::Requirements;
use crate::{command_step, extension};

/// Prepares the environment and runs the demo.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    no_arguments("demo", arguments)?;
    let environment = extension::install(Requirements::Demo)?;
    command_step::announce(
        "Demo",
        "A photograph travels between Python and Rust; its pixels stay where they are.",
    );
    let mut python = environment.python();
    python.arg("examples/py-extension/demo.py").args(["--out", "target/demo"]);
    command_step::run(&mut python)
}
