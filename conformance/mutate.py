"""Breaks the code on purpose and sees the tests fail that the ledger names for the rule; writes `mutations.md`.

    python3 conformance/mutate.py [--python PYTHON] [WORD]

A copy of the sources under `target/mutants` gets all breaks of `mutants_*.py` at once, each behind a switch, so that it
is built once. For each rule that a break is about, a test that `traceability.toml` names for it has to fail; with no
switch on all have to pass. Only `tests/runtime` and `tests/python` are run, for speed. PYTHON has the libraries of the
Python tests (`cargo xtask python` makes one); without it those tests are left out. With a WORD only breaks whose ids,
place or words have it are tried, and nothing is written.
"""

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import mutants_core  # noqa: E402
import mutants_python  # noqa: E402

ROOT = HERE.parent
COPY = ROOT / "target/mutants"
CORE = "interop-core/src/"
MUTANTS = [*mutants_core.MUTANTS, *mutants_python.MUTANTS]
SWITCH = """
/// The break that is switched on.
pub(crate) fn broken(number: usize) -> bool {
    static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let chosen = || std::env::var("INTEROP_MUTANT").ok().and_then(|word| word.parse().ok()).unwrap_or(0);
    *CHOSEN.get_or_init(chosen) == number
}
"""
PARTS = [
    "interop-core",
    "interop-derive",
    "tests",
    "xtask",
    "examples",
    "benches",
    "fuzz",
    "sim-driver",
    "conformance",
    "Cargo.toml",
    "Cargo.lock",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "README.md",
    "clippy.toml",
]


def copy_sources(copy):
    """The sources; with new times, because cargo takes what is older than its last build for built."""
    copy.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        source, place = ROOT / part, copy / part
        if source.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(source, place, copy_function=shutil.copy)
        else:
            shutil.copy(source, place)


def make_copy():
    """The sources with every break in them."""
    copy_sources(COPY)
    for number, (_, file, old, new, what) in enumerate(MUTANTS, 1):
        path = COPY / CORE / file
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{file}: {text.count(old)} places for {what!r}: {old}")
        path.write_text(text.replace(old, new.replace("BROKEN", f"crate::broken({number})")))
    lib = COPY / CORE / "lib.rs"
    lib.write_text(lib.read_text() + SWITCH)


def cargo(*arguments, **variables):
    """Runs cargo in the copy and returns what it printed; the breaks are no code that lints like."""
    environment = {
        **os.environ,
        "RUSTFLAGS": "--cap-lints=warn -Awarnings",
        "CARGO_TARGET_DIR": str(COPY / "target"),
        **variables,
    }
    done = subprocess.run(
        ["cargo", *arguments], cwd=COPY, env=environment, text=True, stderr=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    return done.stderr


def build(python):
    """The test program, and the folder of the extension."""
    said = cargo("test", "--no-run", "--locked", "-p", "interop-tests", "--test", "runtime")
    program = COPY / re.search(r"Executable .*\((.*)\)", said)[1]
    if python is None:
        return program, None
    cargo(
        "build",
        "--locked",
        "-p",
        "interop-demo-extension",
        "--lib",
        PYO3_BUILD_EXTENSION_MODULE="1",
        PYO3_PYTHON=python,
    )
    folder = COPY / "module"
    folder.mkdir(exist_ok=True)
    shutil.copy(COPY / "target/debug/libinterop_demo.so", folder / "interop_demo.abi3.so")
    return program, folder


def ledger():
    """The tests of each id that are run here."""
    tests = {}
    for line in (HERE / "traceability.toml").read_text().splitlines():
        if found := re.match(r"([RB]\d+) = (.*)", line):
            proofs = json.loads(found[2])[1:]
            tests[found[1]] = [proof for proof in proofs if proof.startswith(("tests/runtime/", "tests/python/"))]
    return tests


class Runner:
    """Runs tests with a break switched on, each pair once."""

    def __init__(self, python):
        self.python, (self.program, self.folder) = python, build(python)
        self.passes = functools.cache(self.passes)

    def runs(self, test):
        """Whether there is what the test needs."""
        return test.startswith("tests/runtime/") or self.python is not None

    def passes(self, test, number):
        """Whether a test passes with one break, or with none: 0."""
        file, name = test.split("::")
        if file.endswith(".rs"):
            path = file.removeprefix("tests/runtime/").removesuffix(".rs").replace("/", "::")
            command, where = [self.program, f"{path}::{name}", "--exact"], COPY / "tests"
        else:
            command, where = [self.python, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", test], COPY
        environment = {**os.environ, "INTEROP_MUTANT": str(number), "PYTHONPATH": str(self.folder or "")}
        try:
            done = subprocess.run(command, cwd=where, env=environment, capture_output=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return False
        if b"running 0 tests" in done.stdout or b"no tests ran" in done.stdout:
            raise SystemExit(f"there is no test {test}")
        return done.returncode == 0

    def failing(self, tests, number):
        """The first test that fails with a break; none may fail without."""
        for test in filter(self.runs, tests):
            if not self.passes(test, 0):
                raise SystemExit(f"{test} fails without a break")
            if not self.passes(test, number):
                return test
        return None


def page(rows):
    ids = {name for name, *_ in rows}
    lines = [
        "# Breaks that the tests notice",
        "",
        "Written by `conformance/mutate.py`: the code was broken in one place after the other, and for each rule that",
        "the break is about a test failed that [the ledger](TRACEABILITY.md) names for it. Without a break all pass.",
        "",
        f"{len(MUTANTS)} breaks of {len(ids)} rules; {sum(test is None for *_, test in rows)} were not noticed.",
        "",
        "| id | what was broken | where | the test that failed |",
        "|---|---|---|---|",
    ]
    for name, file, what, test in rows:
        lines.append(f"| {name} | {what} | `{file}` | {f'`{test}`' if test else '**none**'} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="a Python with the libraries of the Python tests")
    parser.add_argument("word", nargs="?", default="")
    given = parser.parse_args()
    make_copy()
    runner, tests, rows = Runner(given.python), ledger(), []
    for number, (ids, file, _, _, what) in enumerate(MUTANTS, 1):
        if given.word not in f"{ids} {file} {what}":
            continue
        for name in ids.split():
            test = runner.failing(tests[name], number)
            print(f"{name}: {what}: {test or 'NOT NOTICED'}", flush=True)
            rows.append((name, file, what, test))
    if not given.word:
        (HERE / "mutations.md").write_text(page(rows))
    return 1 if any(test is None for *_, test in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
