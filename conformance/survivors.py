"""Tries every mutant that cargo-mutants makes of the pure rooms; prints those that no test of `tests/runtime` notices.

    python3 conformance/survivors.py [WORD]...

`cargo mutants` has to be there. To build each mutant takes hours, so a copy of the sources under `target/survivors`
gets all at once, each a function body of its own behind a switch, and is built once those are out that do not compile.
What is computed in the compiler, constants and functions that they call, is built alone. With WORDs only mutants are
tried whose names have one of them.
"""

import collections
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading

from mutate import ROOT, copy_sources

COPY = ROOT / "target/survivors"
CORE = "interop-core/src/"
ROOMS = "error dims dtype typestr device stream layout/* record descriptor claims facts cai/* dlpack/*".split()
SWITCH = """
/// The mutant that is switched on.
pub(crate) fn mutant() -> usize {
    static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("INTEROP_MUTANT").ok().and_then(|word| word.parse().ok()).unwrap_or(0))
}
"""
BUILD = ["cargo", "test", "--no-run", "--locked", "-p", "interop-tests", "--test", "runtime", "--message-format=json"]
ENVIRONMENT = {
    **os.environ,
    # Not the lints that deny: one of them ends a constant that is never done.
    "RUSTFLAGS": "-Awarnings",
    "CARGO_TARGET_DIR": str(COPY / "target"),
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "PROPTEST_CASES": "32",
    # A case that one mutant fails would else be tried with all that follow.
    "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
}
SECONDS = 120
MEMORY = 8 << 30


class Mutant:
    """One change in one function, as cargo-mutants lists it."""

    def __init__(self, number, listed):
        self.number, self.file, self.new = number, listed["file"], listed["replacement"]
        self.name = listed["name"].removeprefix(CORE)
        self.text = text = (ROOT / self.file).read_text()
        self.start, self.end = span(text, listed["span"])
        self.function = self.body = None
        if listed["function"]:
            self.function = listed["function"]["function_name"]
            self.body = body(text, *span(text, listed["function"]["span"]))

    def changed(self, start=0, end=None):
        """The text from `start` to `end`, with the change in it."""
        return self.text[start : self.start] + self.new + self.text[self.end : end]


def span(text, found):
    """The places in the text of a first and a last line and column, which count from 1."""
    lines = text.splitlines(keepends=True)
    return [sum(map(len, lines[: at["line"] - 1])) + at["column"] - 1 for at in (found["start"], found["end"])]


def body(text, start, end):
    """The places of what is between the braces of a function."""
    head = re.compile(r"^(?![ \t]*(?://|#))[^\n]*\bfn\b", re.M).search(text, text.rfind("\n", 0, start) + 1, end)
    depth, opened = 0, head.end()
    while depth or text[opened] != "{":
        depth += {"(": 1, ")": -1}.get(text[opened], 0)
        opened += 1
    return opened + 1, end - 1


def listed(words):
    """The mutants of the rooms whose names have one of the words."""
    rooms = [f"--file={CORE}{room}.rs" for room in ROOMS]
    command = ["cargo", "mutants", "--list", "--json", "--package=interop-core", *rooms]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    mutants = [Mutant(*pair) for pair in enumerate(found, 1)]
    return [mutant for mutant in mutants if any(word in mutant.name for word in words)]


def switched(file, mutants):
    """Writes a file with its mutants behind switches; gives the lines that each of them takes."""
    text, parts, done = (ROOT / file).read_text(), [], 0
    functions = collections.defaultdict(list)
    for mutant in mutants:
        functions[mutant.body].append(mutant)
    for start, end in sorted(functions):
        # A switch is not constant, and the bodies behind it return one type.
        head, boxed = re.subn(r"-> impl ([^{]*) \{$", r"-> Box<dyn \1> {", text[done:start])
        head = re.sub(r"\bconst (fn [^\n]*(?:\n[^{]*)?)$", r"\1", head)
        opening, closing = ("Box::new({", "}),") if boxed else ("{", "}")
        parts.append((None, head + "match crate::mutant() {\n"))
        for mutant in functions[start, end]:
            parts.append((mutant, f"{mutant.number} => {opening}\n{mutant.changed(start, end)}\n{closing}\n"))
        parts.append((None, f"_ => {opening}\n{text[start:end]}\n{closing}\n}}"))
        done = end
    parts.append((None, text[done:]))
    lines, line = {}, 1
    for mutant, part in parts:
        lines[mutant] = range(line, line + part.count("\n"))
        line += part.count("\n")
    # Every copy of what is always inlined would have all mutants in it.
    whole = "".join(part for _, part in parts).replace("#[inline(always)]", "#[inline(never)]")
    (COPY / file).write_text(whole + SWITCH if file.endswith("/lib.rs") else whole)
    return lines


def build():
    """The test program, or `None` and the places of the errors, and the functions that must be `const`."""
    done = subprocess.run(BUILD, cwd=COPY, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0:
        return next(m["executable"] for m in messages if m.get("target", {}).get("name") == "runtime"), [], []
    errors = [m["message"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
    spans = [place for error in errors for place in error["spans"] if place["is_primary"]]
    if not spans:
        raise SystemExit(done.stderr[-4000:])
    constant = re.findall("non-const [^`]*`([^`<]*)", " ".join(error["message"] for error in errors))
    return None, [(place["file_name"], place["line_start"]) for place in spans], constant


def build_switched(mutants):
    """The program with all mutants that compile, those that do not, and those that no switch can be put before."""
    wrong, alone = set(), {mutant for mutant in mutants if not mutant.body}
    files = {CORE + "lib.rs", *(mutant.file for mutant in mutants)}
    while True:
        left = [mutant for mutant in mutants if mutant not in wrong | alone]
        lines = {file: switched(file, [mutant for mutant in left if mutant.file == file]) for file in files}
        program, errors, constant = build()
        if program:
            return program, wrong, alone
        more = {m for file, line in errors for m, taken in lines.get(file, {}).items() if m and line in taken}
        fixed = {m for m in left for path in constant if f"::{path}".endswith(f"::{m.function}")}
        if not more | fixed:
            raise SystemExit(f"errors outside of mutants: {errors}")
        print(f"of {len(left)} {len(more)} do not compile, {len(fixed)} have to be alone", flush=True)
        wrong, alone = wrong | more, alone | fixed


def build_alone(mutant):
    """The program with one mutant, built by itself; `None` if it does not compile."""
    (COPY / mutant.file).write_text(mutant.changed())
    program, *_ = build()
    (COPY / mutant.file).write_text(mutant.text)
    return program


def answer(program, number):
    """What the tests say of a mutant: the first that fails, how it ended else, or `missed`."""
    limit = (MEMORY, MEMORY)
    tests = subprocess.Popen(
        [program, "--test-threads=1"],
        cwd=COPY / "tests",
        env={**ENVIRONMENT, "INTEROP_MUTANT": str(number)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )
    late = threading.Timer(SECONDS, tests.kill)
    late.start()
    last = ""
    try:
        for line in tests.stdout:
            last = line
            if re.match(r"test .* FAILED$", line):
                tests.kill()
                return "failed: " + line.split()[1]
        code = tests.wait()
    finally:
        late.cancel()
        tests.wait()
    if code == 0:
        return "missed"
    return f"{'too late' if code == -signal.SIGKILL else f'ended with {code}'}: {last.strip()}"


def main():
    mutants = listed(sys.argv[1:] or [""])
    copy_sources(COPY)
    program, wrong, alone = build_switched(mutants)
    if (said := answer(program, 0)) != "missed":
        raise SystemExit(f"without a mutant: {said}")
    answers = dict.fromkeys(wrong, "not compiled")
    for mutant in mutants:
        if mutant not in wrong | alone:
            answers[mutant] = answer(program, mutant.number)
            print(f"{mutant.name}: {answers[mutant]}", flush=True)
    copy_sources(COPY)
    for mutant in mutants:
        if mutant in alone:
            program = build_alone(mutant)
            answers[mutant] = answer(program, 0) if program else "not compiled"
            print(f"{mutant.name}: {answers[mutant]}", flush=True)
    print(collections.Counter(said.split(":")[0] for said in answers.values()))
    print("\n".join(mutant.name for mutant in mutants if answers[mutant] == "missed"))


if __name__ == "__main__":
    main()
