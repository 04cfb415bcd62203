//! `cargo xtask sanitize`: the tests under the sanitizers of the nightly compiler, under valgrind, and in Miri.
//!
//! | word | what is compiled with the checker in it | what is not |
//! | --- | --- | --- |
//! | `address` | core, derive, tests, every crate that they use | the standard library, the simulated driver |
//! | `thread` | these too, with the standard library and the simulated driver | nothing |
//! | `python` | the extension with all its crates | CPython and its libraries; what they allocate is watched |
//! | `valgrind` | nothing; every instruction is watched, CPython's own included | |
//! | `miri` | nothing; core, tests and standard library are interpreted | the simulated driver, C, CPython: Miri loads no libraries |
//!
//! Leaks are looked for in `address` and in the Rust half of `valgrind`; Python's tests count their exports, allocations
//! and releases themselves, and CPython keeps memory on purpose.

mod build;
mod interpreter;

use std::process::Command;

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::suites::{self, Suite};
use crate::test_counts::Counts;
use crate::{command_step, sim, tools, workspace};
use build::Sanitizer;

/// What computes at run time, without the messages of the compiler.
const TESTS: [&str; 4] = ["--package=interop-tests", "--test=runtime", "--test=derive", "--test=driver"];
/// The fuzz targets over the conformance corpus and near it.
const TARGETS: [&str; 2] = ["--package=interop-fuzz", "--test=targets"];

/// The tests about capsules and who releases what is in them.
const CAPSULES: [&str; 4] = [
    "tests/python/test_capsules.py",
    "tests/python/test_capsule_life.py",
    "tests/python/test_export.py",
    "tests/python/test_exchange_offered.py",
];
/// What pytest is told under a sanitizer. A report ends the process, so it must not be held back. Left out are tests that look
/// at the memory of the process, because freed memory is kept for a while, and that of the types, in which nothing runs.
const PYTEST: &str = "--capture=sys --deselect=tests/python/test_numpy.py::test_ten_thousand_trips_leave_nothing \
                      --deselect=tests/python/test_exchange_offered.py::test_borrowed_numbers_do_not_pile_up \
                      --deselect=tests/python/test_soak.py --deselect=tests/python/test_stubs.py";
/// What valgrind is asked for. An error that it finds ends the program with a number of its own.
const MEMCHECK: [&str; 6] = [
    "--quiet",
    "--error-exitcode=99",
    "--trace-children=yes",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
];

const SUITES: [Suite; 5] = [
    Suite {
        word: "address",
        name: "AddressSanitizer",
        why: "No access outside memory that is allocated, and none after its release; nothing is left at the end.",
        run: address,
    },
    Suite {
        word: "thread",
        name: "ThreadSanitizer",
        why: "No two threads meet at one place without an order, in the core or in the driver under it.",
        run: thread,
    },
    Suite {
        word: "python",
        name: "AddressSanitizer in CPython",
        why: "The same where CPython and other libraries allocate, hold and release.",
        run: python,
    },
    Suite {
        word: "valgrind",
        name: "Valgrind",
        why: "The tests about capsules once more: no decision hangs on memory that was never written.",
        run: valgrind,
    },
    Suite {
        word: "miri",
        name: "Miri",
        why: "Tensors and storages by the rules of the language: each pointer may reach what it is used for.",
        run: interpreter::run,
    },
];

/// Runs the checkers named in `arguments`, or all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    suites::choose(&SUITES, arguments)
}

fn address(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    for fault in ["use-after-free", "leak"] {
        build::must_find(Sanitizer::Address, fault)?;
    }
    sim::build()?;
    let mut cargo = Sanitizer::Address.cargo("test")?;
    cargo.args(["--no-fail-fast", &workspace::plain_features()]).args(TESTS).args(TARGETS);
    suites::follow(sim::hidden(&mut cargo), counts)
}

fn thread(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    build::must_find(Sanitizer::Thread, "race")?;
    // A driver with the sanitizer in it: what threads agree on there is an order that must be seen.
    command_step::run(Sanitizer::Thread.cargo("build")?.arg("--package=interop-sim-driver"))?;
    let mut cargo = Sanitizer::Thread.cargo("test")?;
    cargo.env("INTEROP_SIM_DRIVER", Sanitizer::Thread.built("libinterop_sim_driver.so"));
    cargo.args(["--no-fail-fast", &workspace::plain_features()]).args(TESTS);
    suites::follow(sim::hidden(&mut cargo), counts)
}

fn python(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    let environment = Environment::prepare(Requirements::Tests)?;
    let mut cargo = Sanitizer::Address.cargo("rustc")?;
    cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", environment.python().get_program());
    // With debug assertions, but no frames so large that Python's own limit of recursion comes after the end of the stack.
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    command_step::run(cargo.args(["--package=interop-demo-extension", "--lib"]))?;
    let modules = build::module(&Sanitizer::Address.built("libinterop_demo.so"), "address")?;
    let runtime = build::address_runtime()?;
    // Without the sanitizer's runtime an extension with the sanitizer in it cannot be loaded.
    let imports = ["-c", "import interop_demo"];
    if command_step::ask(environment.python().env("PYTHONPATH", &modules).args(imports)).is_some() {
        return Err(Failure::new(format!("the module in {} has no sanitizer in it", modules.display())));
    }
    let watched = || {
        let mut python = environment.python();
        // CPython's own pools of memory would hide what is in them.
        python.env("PYTHONPATH", &modules).env("PYTHONMALLOC", "malloc").env("LD_PRELOAD", &runtime);
        python.env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1");
        python.env("PYTEST_ADDOPTS", PYTEST);
        python
    };
    command_step::run(watched().args(imports))?;
    build::must_fail(watched().args([
        "-c",
        "import ctypes; place = (ctypes.c_char * 8)(); ctypes.memmove(place, bytes(4096), 4096)",
    ]))?;
    sim::build()?;
    suites::pytest_twice(watched, counts)
}

fn valgrind(counts: &mut Counts) -> Result<(), Failure> {
    if command_step::ask(Command::new("valgrind").arg("--version")).is_none() {
        return Err(Failure::new(
            "valgrind is not installed; on Debian and Ubuntu the package `valgrind` has it",
        ));
    }
    for fault in ["use-after-free", "leak"] {
        build::must_find(Sanitizer::None, fault)?;
    }
    sim::build()?;
    let mut cargo = workspace::cargo(["test", "--locked", "--package=interop-tests", "--test=runtime"]);
    cargo.env(build::variable("RUNNER"), format!("valgrind {}", MEMCHECK.join(" ")));
    cargo.args([&workspace::plain_features(), "--", "dlpack::", "storage::"]);
    let runtime = suites::follow(sim::hidden(&mut cargo), counts);
    let environment = Environment::prepare(Requirements::Tests)?;
    // Not optimised: LLVM may read what was never written as long as nothing comes of it, and valgrind reports that.
    let mut cargo = workspace::cargo(["rustc", "--package=interop-demo-extension", "--lib", "--locked"]);
    let folder = workspace::target().join("extension");
    cargo.arg("--target-dir").arg(&folder).env("PYO3_BUILD_EXTENSION_MODULE", "1");
    command_step::run(cargo.env("PYO3_PYTHON", environment.python().get_program()))?;
    let modules = build::module(&folder.join("debug/libinterop_demo.so"), "valgrind")?;
    let mut python = Command::new("valgrind");
    python.args([
        "--quiet",
        "--error-exitcode=99",
        "--leak-check=no",
        "--suppressions=tests/python/valgrind.supp",
    ]);
    python.arg(environment.python().get_program()).args(["-B", "-u"]).current_dir(workspace::root());
    python.env("PYTHONPATH", &modules).env("PYTHONMALLOC", "malloc");
    runtime.and(suites::pytest(sim::hidden(&mut python), &CAPSULES, counts))
}
