//! The workspace's commands, run as `cargo xtask <command>`.
//!
//! People and automation use the same commands: the automation runs `cargo xtask ci`.

mod bench_python;
mod bless;
mod bundle;
mod ci;
mod command_step;
mod compile_time;
mod demo;
mod extension;
mod failure;
mod files;
mod free_threaded;
mod fuzz;
#[cfg(test)]
mod module_arrows;
mod newest_numpy;
mod ptx;
mod published;
mod pyo3;
mod python;
mod report;
mod sanitize;
mod sim;
mod suites;
mod templates;
mod test_counts;
mod tools;
mod trace;
mod workspace;

use std::env;
use std::process::ExitCode;

use failure::Failure;

/// A line of the command table.
struct Command {
    /// The word after `cargo xtask`.
    name: &'static str,
    /// The arguments after its name, for the help.
    arguments: &'static str,
    /// What it does, in one line.
    help: &'static str,
    /// Runs it with the arguments that followed the name.
    run: fn(&[String]) -> Result<(), Failure>,
}

/// All commands.
const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        arguments: "",
        help: "a photograph goes through Rust, NumPy and JAX, and no pixel is copied on the way",
        run: demo::run,
    },
    Command {
        name: "test",
        arguments: "[SUITE]...",
        help: "every test, or those of some suites: debug, cuda, release, doc, ptx, python, templates",
        run: suites::run,
    },
    Command {
        name: "ci",
        arguments: "",
        help: "everything that a change must pass: format, lints, documentation, packages, every test",
        run: ci::run,
    },
    Command {
        name: "python",
        arguments: "",
        help: "the example extension in a virtual environment, to try it by hand",
        run: extension::run,
    },
    Command {
        name: "bench-python",
        arguments: "[WORDS]",
        help: "what an exchange with Python costs, beside hand-written C and nanobind, and what it may cost at most",
        run: bench_python::run,
    },
    Command {
        name: "soak-python",
        arguments: "",
        help: "ten million exchanges with Python; the memory of the process stays what it was",
        run: bench_python::soak,
    },
    Command {
        name: "sim",
        arguments: "",
        help: "the simulated CUDA driver in target/sim/lib64, for tests without a GPU",
        run: sim::run,
    },
    Command {
        name: "gpu-bundle",
        arguments: "",
        help: "tests, examples and benches, built, for a machine with a GPU and without Rust",
        run: bundle::run,
    },
    Command {
        name: "bless",
        arguments: "",
        help: "rewrite the expected messages and expansions of the derive, and the list of public items",
        run: bless::run,
    },
    Command {
        name: "ptx",
        arguments: "",
        help: "compile the CUDA kernels of the core and of the examples to the PTX beside them",
        run: ptx::run,
    },
    Command {
        name: "trace",
        arguments: "",
        help: "write the table from each rule of the protocols to its tests",
        run: trace::run,
    },
    Command {
        name: "fuzz",
        arguments: "[SECONDS] [TARGET]...",
        help: "the fuzz targets, each for 60 seconds or as many as are given; needs the nightly compiler",
        run: fuzz::run,
    },
    Command {
        name: "torture",
        arguments: "[SECONDS]",
        help: "random work in threads, for 60 seconds or as many as are given, and a hundred ends of the interpreter",
        run: suites::torture,
    },
    Command {
        name: "free-threaded",
        arguments: "PYTHON",
        help: "the Python tests on an interpreter without the lock, 3.14 or later",
        run: free_threaded::run,
    },
    Command {
        name: "pyo3",
        arguments: "[MINOR]...",
        help: "the Python tests with each minor version of PyO3 that is allowed, or with those that are named",
        run: pyo3::run,
    },
    Command {
        name: "guard",
        arguments: "[CHECK]...",
        help: "what users build on: api, features, compiler (oldest), platforms, classes (messages), minimal (oldest dependencies), deny (licences)",
        run: published::run,
    },
    Command {
        name: "sanitize",
        arguments: "[SUITE]...",
        help: "the tests under checkers of memory and threads: address, thread, python, valgrind, miri",
        run: sanitize::run,
    },
    Command {
        name: "compile-time",
        arguments: "",
        help: "how long it takes to build the core and to check 500 structs, beside serde",
        run: compile_time::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        return list("a command is missing");
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", table());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return list(&format!("there is no command `{name}`"));
    };
    match (command.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

/// Rejects a command line: prints the reason and the list of commands, and returns the exit code for wrong usage.
fn list(why: &str) -> ExitCode {
    Failure::usage(format!("{why}\n\n{}", table())).exit()
}

/// Formats the commands with one line of help each.
fn table() -> String {
    let line = |Command { name, arguments, help, .. }: &Command| {
        format!("  {:<27}{help}", format!("{name} {arguments}"))
    };
    let lines: Vec<_> = COMMANDS.iter().map(line).collect();
    format!("usage: cargo xtask <command>\n\n{}", lines.join("\n"))
}
