//! `cargo xtask sanitize`: runs the tests under the sanitizers of the nightly compiler, under valgrind, and in Miri.
//!
//! | word | instrumented | not instrumented |
//! | --- | --- | --- |
//! | `address` | core, derive, tests, every crate that they use | the standard library, the simulated driver |
//! | `thread` | the same, and the standard library and the simulated driver | nothing |
//! | `python` | the extension with all its crates | CPython and its libraries; their allocations are tracked |
//! | `valgrind` | nothing; every instruction is watched, CPython's own included | |
//! | `miri` | nothing; core, tests and standard library are interpreted | the simulated driver, C, CPython |
//!
//! Leaks are detected in `address` and in the Rust half of `valgrind`. Python's tests count their exports, allocations
//! and releases themselves, because CPython keeps memory on purpose.

mod build;
mod interpreter;

use std::process::Command;

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::sanitize::build::{MEMCHECK, Sanitizer};
use crate::suite::{self, Suite};
use crate::test_counts::Counts;
use crate::test_runs::{follow, pytest};
use crate::{command_step, python_tests, sim, tools, workspace};

/// The tests that compute at run time, without those of compiler messages.
const TESTS: [&str; 5] = [
    "--package=interop-tests",
    "--package=interop-runtime-tests",
    "--test=runtime",
    "--test=derive",
    "--test=driver",
];
/// The fuzz targets on the conformance corpus and variations of it.
const TARGETS: [&str; 2] = ["--package=interop-fuzz", "--test=targets"];

/// The tests of capsules and their release.
const CAPSULES: [&str; 5] = [
    "tests/python/test_capsules.py",
    "tests/python/test_conformance.py::test_tensors",
    "tests/python/test_capsule_life.py",
    "tests/python/test_export.py",
    "tests/python/test_exchange_offered.py",
];
/// The pytest options under a sanitizer.
///
/// A report ends the process, so output must not be captured. Excluded are tests that measure the memory of the
/// process, because freed memory is kept for a while, and the tests of type stubs, which run no code of the extension.
const PYTEST: &str = "--capture=sys --deselect=tests/python/test_numpy.py::test_ten_thousand_trips_leave_nothing \
                      --deselect=tests/python/test_producers.py::test_types_that_are_gone_are_forgotten \
                      --deselect=tests/python/test_soak.py --deselect=tests/python/test_stubs.py";

const SUITES: [Suite; 6] = [
    Suite {
        word: "canaries",
        name: "Faults made on purpose",
        why: "AddressSanitizer finds each; the other checkers have their own before their tests.",
        run: canaries,
    },
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
    suite::choose(&SUITES, arguments)
}

fn canaries(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    for fault in ["use-after-free", "leak"] {
        build::must_find(Sanitizer::Address, fault)?;
        counts.passed += 1;
    }
    Ok(())
}

fn address(counts: &mut Counts) -> Result<(), Failure> {
    canaries(&mut Counts::default())?;
    sim::build()?;
    let mut cargo = Sanitizer::Address.cargo("test")?;
    cargo.args(["--no-fail-fast", &workspace::plain_features()]).args(TESTS).args(TARGETS);
    follow(sim::hidden(&mut cargo), counts)
}

fn thread(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    build::must_find(Sanitizer::Thread, "race")?;
    // The driver is instrumented too, because threads synchronize in it and the sanitizer must see that.
    command_step::run(Sanitizer::Thread.cargo("build")?.arg("--package=simulated-cuda-driver"))?;
    let mut cargo = Sanitizer::Thread.cargo("test")?;
    cargo.env("SIMULATED_CUDA_DRIVER", Sanitizer::Thread.built("libsimulated_cuda_driver.so"));
    cargo.args(["--no-fail-fast", &workspace::plain_features()]).args(TESTS);
    follow(sim::hidden(&mut cargo), counts)
}

fn python(counts: &mut Counts) -> Result<(), Failure> {
    tools::need_nightly()?;
    let environment = Environment::prepare(Requirements::Tests)?;
    let mut cargo = Sanitizer::Address.cargo("rustc")?;
    cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1").env("PYO3_PYTHON", environment.python().get_program());
    // With debug assertions. The optimization keeps stack frames small, so that Python's recursion limit comes before a
    // stack overflow.
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    command_step::run(cargo.args(["--package=interop-demo-extension", "--lib"]))?;
    let modules = build::module(&Sanitizer::Address.built("libinterop_demo.so"), "address")?;
    let runtime = build::address_runtime()?;
    // An instrumented extension cannot be loaded without the sanitizer's runtime.
    let imports = ["-c", "import interop_demo"];
    if command_step::ask(environment.python().env("PYTHONPATH", &modules).args(imports)).is_some() {
        return Err(Failure::new(format!("the module in {} has no sanitizer in it", modules.display())));
    }
    let watched = || {
        let mut python = environment.python();
        // CPython's own memory pools would hide errors from the sanitizer.
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
    python_tests::pytest_twice(watched, counts)
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
    let mut cargo =
        workspace::cargo(["test", "--locked", "--package=interop-runtime-tests", "--test=runtime"]);
    cargo.env(build::variable("RUNNER"), format!("valgrind {}", MEMCHECK.join(" ")));
    cargo.args([&workspace::plain_features(), "--", "dlpack::", "storage::"]);
    let runtime = follow(sim::hidden(&mut cargo), counts);
    let environment = Environment::prepare(Requirements::Tests)?;
    // Not optimized: LLVM may read uninitialized memory if the value has no effect, which valgrind would report.
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
    runtime.and(pytest(sim::hidden(&mut python), &CAPSULES, counts))
}
