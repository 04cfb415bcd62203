//! The workspace's commands, run as `cargo xtask <command>`.
//!
//! People and automation use the same commands: the automation runs `cargo xtask ci` for a change, and
//! `cargo xtask nightly`.

mod bench_python;
mod bless;
mod bundle;
mod checklists;
mod ci;
#[cfg(test)]
mod code_budget;
mod command_step;
mod compile_time;
mod cuda_core;
mod demo;
mod extension;
mod failure;
mod files;
mod free_threaded;
mod functions;
mod fuzz;
mod guard;
#[cfg(test)]
mod module_arrows;
mod newest_numpy;
mod packages;
mod ptx;
mod public_items;
mod published;
mod pyo3;
mod python;
mod python_tests;
mod release;
mod report;
mod rust_kernels;
mod sanitize;
#[cfg(test)]
mod shortcuts;
mod sim;
mod suite;
mod suites;
mod templates;
mod test_counts;
mod test_runs;
mod tools;
mod torture;
#[cfg(test)]
mod traceability;
mod workflow;
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
    /// How `cargo xtask ci` or `cargo xtask nightly` runs it, so that no command stops working unnoticed.
    runs: Runs,
}

/// How `cargo xtask ci` or `cargo xtask nightly` runs a command.
enum Runs {
    /// As a check or suite of its own, which this text in `ci.rs` or `suites.rs` runs.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test looks for it"))]
    As(&'static str),
    /// By `cargo xtask nightly` with these arguments, which ask for the smallest size, unless the machine lacks something.
    Nightly(&'static [&'static str], fn() -> Option<String>),
}

/// Nothing that a command needs is missing on any machine.
const fn nothing() -> Option<String> {
    None
}

/// All commands.
const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        arguments: "",
        help: "a photograph goes through Rust, NumPy and JAX, and no pixel is copied on the way",
        run: demo::run,
        runs: Runs::Nightly(&[], nothing),
    },
    Command {
        name: "test",
        arguments: "[SUITE]...",
        help: "the tests, or some suites: debug, doc, python; and cuda, which ci runs too, and those of nightly: release, python-long, ptx, templates, functions, cuda-core",
        run: suites::run,
        runs: Runs::As("run_into(&mut report, CHANGE)"),
    },
    Command {
        name: "ci",
        arguments: "",
        help: "what a change must pass, in twenty minutes: format, lints, documentation, tests, packages, oldest Rust",
        run: ci::run,
        runs: Runs::As("pub(crate) fn run"),
    },
    Command {
        name: "nightly",
        arguments: "",
        help: "the checks that ci leaves out: other builds and versions, fuzzing, every command at its smallest size",
        run: ci::nightly,
        runs: Runs::As("pub(crate) fn nightly"),
    },
    Command {
        name: "python",
        arguments: "",
        help: "the example extension in a virtual environment, to try it by hand",
        run: extension::run,
        runs: Runs::Nightly(&[], nothing),
    },
    Command {
        name: "bench-python",
        arguments: "[--once] [WORDS]",
        help: "what an exchange with Python costs, beside hand-written C and nanobind, and what it may cost at most",
        run: bench_python::run,
        runs: Runs::Nightly(&["--once"], nothing),
    },
    Command {
        name: "soak-python",
        arguments: "[MILLIONS]",
        help: "ten million exchanges with Python; the memory of the process stays what it was",
        run: bench_python::soak,
        runs: Runs::Nightly(&["0.1"], bench_python::no_proc),
    },
    Command {
        name: "sim",
        arguments: "[FOLDER]",
        help: "the simulated CUDA driver in target/sim/lib64 or in a folder of yours, for tests without a GPU",
        run: sim::run,
        runs: Runs::As("sim::build"),
    },
    Command {
        name: "gpu-bundle",
        arguments: "",
        help: "tests, examples and benches, built, for a machine with a GPU and without Rust",
        run: bundle::run,
        runs: Runs::Nightly(&[], nothing),
    },
    Command {
        name: "bless",
        arguments: "[expansions]",
        help: "rewrite the expected messages and expansions of the derive, and the list of public items",
        run: bless::run,
        runs: Runs::Nightly(&["expansions"], nothing),
    },
    Command {
        name: "ptx",
        arguments: "",
        help: "compile the CUDA kernels of the core and of the examples, in Rust and in C++, to the PTX beside them",
        run: ptx::run,
        runs: Runs::As("ptx::check"),
    },
    Command {
        name: "fuzz",
        arguments: "[SECONDS] [TARGET]...",
        help: "the fuzz targets, each for 60 seconds or as many as are given; needs the nightly compiler",
        run: fuzz::run,
        runs: Runs::As("fuzz::suite"),
    },
    Command {
        name: "torture",
        arguments: "[SECONDS]",
        help: "random work in threads, for 60 seconds or as many as are given, and a hundred ends of the interpreter",
        run: torture::run,
        runs: Runs::Nightly(&["1"], nothing),
    },
    Command {
        name: "free-threaded",
        arguments: "PYTHON",
        help: "the Python tests on an interpreter without the lock, 3.14 or later",
        run: free_threaded::run,
        runs: Runs::Nightly(&["python3.14t"], free_threaded::no_interpreter),
    },
    Command {
        name: "pyo3",
        arguments: "[MINOR]...",
        help: "the Python tests with each minor version of PyO3 that is allowed, or with those that are named",
        run: pyo3::run,
        runs: Runs::As("pyo3::oldest"),
    },
    Command {
        name: "guard",
        arguments: "[CHECK]...",
        help: "what users build on: packages, api, semver, publish, features, compiler (oldest), platforms, classes (messages), lists (of places), minimal (oldest dependencies), deny (licences)",
        run: guard::run,
        runs: Runs::Nightly(&["classes"], nothing),
    },
    Command {
        name: "sanitize",
        arguments: "[SUITE]...",
        help: "the tests under checkers of memory and threads: address, thread, python, valgrind, miri; canaries (faults that they must find)",
        run: sanitize::run,
        runs: Runs::Nightly(&["canaries"], tools::no_nightly),
    },
    Command {
        name: "compile-time",
        arguments: "[RUNS]",
        help: "how long it takes to build the core, to check 500 structs beside serde, and to build and import an extension",
        run: compile_time::run,
        runs: Runs::Nightly(&["1"], nothing),
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) if !matches!(name.as_str(), "help" | "--help" | "-h") => (name, rest),
        _ => {
            println!("{}", table());
            return ExitCode::SUCCESS;
        }
    };
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

/// The number of commands for everybody, at the start of [`COMMANDS`].
const FOR_EVERYBODY: usize = 5;

/// Formats the commands with one line of help each.
fn table() -> String {
    let line = |Command { name, arguments, help, .. }: &Command| {
        format!("  {:<30}{help}", format!("{name} {arguments}"))
    };
    let (everybody, others) = COMMANDS.split_at(FOR_EVERYBODY);
    let lines = |commands: &[Command]| commands.iter().map(line).collect::<Vec<_>>().join("\n");
    format!("usage: cargo xtask <command>\n\n{}\n\nfor special work:\n\n{}", lines(everybody), lines(others))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_command_runs_in_ci_or_nightly() {
        let read =
            |name: &str| files::read(&workspace::root().join("xtask/src").join(name)).expect("a source");
        let sources = read("ci.rs") + &read("suites.rs");
        for Command { name, runs, .. } in COMMANDS {
            match runs {
                Runs::As(text) => {
                    assert!(sources.contains(text), "`{text}`, which runs `{name}`, is not there");
                }
                Runs::Nightly(arguments, _) => {
                    assert!(arguments.len() < 2, "`{name}` has a smallest size of one argument at most");
                }
            }
        }
    }

    /// A test that was renamed would make a command fail before it runs anything, or leave out nothing.
    #[test]
    fn every_test_that_a_command_names_exists() {
        let mut named = 0;
        for source in files::entries(&workspace::root().join("xtask/src")).expect("the sources") {
            let Ok(text) = fs::read_to_string(&source) else { continue };
            for (start, _) in text.match_indices("tests/") {
                let is_name = |c: char| c.is_alphanumeric() || "_-/.:".contains(c);
                let folder = text[..start].rsplit(|c| !is_name(c)).next().unwrap_or_default();
                let part = &text[start..];
                let name = &part[..part.find(|c| !is_name(c)).unwrap_or(part.len())];
                let Some((file, function)) = name.split_once(".py") else { continue };
                let place = workspace::root().join(folder.trim_start_matches('/')).join(format!("{file}.py"));
                let code = files::read(&place).expect("the file of tests that a command names");
                let function = function.trim_start_matches("::");
                assert!(function.is_empty() || code.contains(&format!("def {function}(")), "{name}");
                named += 1;
            }
        }
        assert!(named > 30, "{named} names were found");
    }
}
