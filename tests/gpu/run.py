"""Runs the parts of a GPU bundle, each in its own process with a time limit, and prints one table.

    run.sh [PART]... [--limit SECONDS] [--jobs N]      parts: rust, processes, python, races, functions, speed, rows, sanitizer, examples; all without a name
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

GPU = Path(__file__).resolve().parent
BUNDLE = GPU.parent
PARTNERS = ("torch", "cupy", "jax", "numba", "numba_cuda_mlir", "warp", "cuda_core", "nanobind", "dali", "tvm_ffi", "pycuda")
NAMED = (
    "dali_stream_none",
    "jax_strided_memory_view",
    "warp_missing_strides",
    "pinned_kernel_argument",
    "nanobind_device",
    "torch_negative_strides",
    "as_array",
)
# These run alone: other work on the GPU would change their timings, the outcome of races, or the free memory.
TIMED = ("races", "processes", "processes_python", "caller_streams", "functions", "speed", "row_speed", "lifetime", "device_copies")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# initcheck reports data copied from device or managed memory of another context as uninitialized. A C program that
# makes the same six calls shows the same.
TAKEN_FOR_FAULTS = {("initcheck", "cuda"): ["--skip", "a_copy_on_a_stream_of_another_context"]}


@dataclass
class Row:
    """A line of the table."""

    part: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: Counter = field(default_factory=Counter)
    # The parameters of the tests that belong to a note.
    cells: dict = field(default_factory=dict)


@dataclass
class Part:
    """A part: a command, the function that reads its outcome, and its time limit."""

    group: str
    name: str
    command: list
    read: object
    limit: float = 120.0


def parts(work):
    """All parts in the order in which they run."""
    for program in programs("rust"):
        yield Part("rust", f"rust {program.name}", [program, "--show-output"], libtest, 180)
    for program in programs("random-kernels"):
        yield Part("rust", program.name, [program, "--show-output"], libtest, 180)
    for partner in PARTNERS:
        yield pytest(work, "python", f"matrix {partner}", "matrix.py", "--partner", partner)
    for name in NAMED:
        yield pytest(work, "python", name, f"{name}.py")
    for name in ("bad_input", "memory_origins", "layouts", "large", "lifetime", "forks", "capture", "random_programs", "results", "device_copies"):
        yield pytest(work, "python", name, f"{name}.py", limit=180)
    for program in programs("processes"):
        yield Part("processes", "processes", [program], table, 180)
    yield pytest(work, "processes", "processes_python", "processes.py", limit=180)
    yield pytest(work, "races", "races", "races.py", limit=300)
    yield pytest(work, "races", "caller_streams", "caller_streams.py", limit=300)
    yield pytest(work, "functions", "functions", "functions.py", limit=400)
    yield Part("functions", "function_speed", [sys.executable, "-B", GPU / "function_speed.py"], table, 240)
    yield Part("speed", "speed", [sys.executable, "-B", GPU / "speed.py"], table, 240)
    yield Part("speed", "kernel_speed", [sys.executable, "-B", GPU / "kernel_speed.py"], table, 240)
    yield Part("speed", "copies", [sys.executable, "-B", GPU / "copies.py"], table, 240)
    yield Part("speed", "loops", [sys.executable, "-B", GPU / "loops.py"], table, 240)
    yield pytest(work, "rows", "row_kernels", "row_kernels.py")
    yield Part("rows", "row_speed", [sys.executable, "-B", GPU / "row_speed.py"], table, 120)
    for program in programs("benches"):
        yield Part("speed", f"bench {program.name}", [program, "--bench"], status, 120)
    for program in programs("examples"):
        yield Part("examples", f"example {program.name}", command_of(program), printed(promised(program.name)), 120)
    for tool in SANITIZERS:
        sanitize = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99", "--report-api-errors", "no"]
        own = [sys.executable, "-B", GPU / "compute_sanitizer.py"]
        compiled = [program for program in programs("rust") + programs("examples") if program.suffix != ".py"]
        for name, command in [("python", own), *((program.name, [program]) for program in compiled)]:
            # Gigabytes take minutes under this tool, and no kernel there uses shared memory, so there are no races to
            # find.
            if (tool, name) != ("racecheck", "bandwidth"):
                left_out = TAKEN_FOR_FAULTS.get((tool, name), [])
                yield Part("sanitizer", f"{tool} {name}", [*sanitize, *command, *left_out], sanitizer, 150)


def programs(folder):
    return sorted(path for path in (BUNDLE / folder).glob("*") if path.is_file() and path.suffix != ".ptx")


def command_of(program):
    return [sys.executable, "-B", program] if program.suffix == ".py" else [program]


def pytest(work, group, name, file, *arguments, limit=150):
    """A file of tests. The outcome is read from pytest's report."""
    report = work / f"{name.replace(' ', '-')}.xml"
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", GPU, "--tb=short"]
    command += ["-o", "faulthandler_timeout=100", "-o", "junit_family=xunit2", f"--junitxml={report}", GPU / file]
    return Part(group, name, [*command, *arguments], lambda row, code, text: junit(row, code, text, report), limit)


def junit(row, code, text, report):
    """Reads the test cases of a report. A process that crashed has written none."""
    if not report.exists():
        row.failed += 1
        row.notes[f"no report, exit status {code}: {last_line(text)}"] += 1
        return
    for case in xml.parse(report).getroot().iter("testcase"):
        problem = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            row.passed += 1
        elif problem.tag == "skipped":
            row.skipped += 1
            row.notes[f"skipped: {first_line(problem.get('message'))}"] += 1
        else:
            row.failed += 1
            test, _, cell = case.get("name").partition("[")
            note = f"FAILED {test}: {first_line(problem.get('message'))}"
            row.notes[note] += 1
            row.cells.setdefault(note, []).append(cell.rstrip("]"))
    if row.passed + row.failed + row.skipped == 0:
        row.failed += 1
        row.notes[f"no tests, exit status {code}: {last_line(text)}"] += 1


def libtest(row, code, text):
    """Reads the last line of a Rust test program and the names of the failed tests."""
    for passed, failed, ignored in re.findall(r"test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", text):
        row.passed, row.failed = row.passed + int(passed), row.failed + int(failed)
        row.skipped += int(ignored)
    for name in re.findall(r"^test (\S+) \.\.\. FAILED", text, re.M):
        row.notes[f"FAILED {name}"] += 1
    for reason in re.findall(r"^\s*skipped: (.*)", text, re.M):
        row.notes[f"skipped: {reason}"] += 1
    if code != 0 and row.failed == 0:
        row.failed = 1
        row.notes[f"exit status {code}: {last_line(text)}"] += 1


def table(row, code, text):
    """Reads a program whose lines end in `holds` or `MISSED`."""
    row.passed, row.failed = len(re.findall(r"\bholds$", text, re.M)), len(re.findall(r"\bMISSED$", text, re.M))
    row.skipped = len(re.findall(r"\bskipped: ", text))
    for line in re.findall(r"^(.*\bMISSED)$", text, re.M):
        row.notes[" ".join(line.split())] += 1
    for reason in re.findall(r"\bskipped: (.*)", text):
        row.notes[f"skipped: {reason}"] += 1
    if code != 0 or row.passed + row.failed == 0:
        row.failed += 1
        row.notes[f"exit status {code}: {last_line(text)}"] += 1


def status(row, code, text):
    """Reads a program that succeeds, fails, or prints why it was skipped."""
    lacks = re.findall(r"^skipped: (.*)", text, re.M)
    row.passed, row.failed, row.skipped = int(code == 0 and not lacks), int(code != 0), int(code == 0 and bool(lacks))
    row.notes.update(f"skipped: {reason}" for reason in lacks)
    if code:
        row.notes[f"exit status {code}: {last_line(text)}"] += 1


def promised(example):
    """The lines that the example prints on every machine."""
    file = next(file for file in (GPU / "output.txt", BUNDLE.parent / "examples" / "output.txt") if file.exists())
    sections = dict(re.findall(r"^\[(.*)\]\n((?:[^\[\n].*\n)*)", file.read_text(encoding="utf-8"), flags=re.M))
    if example not in sections:
        raise LookupError(f"{file} says nothing of {example}")
    return sections[example].splitlines()


def printed(lines):
    """Reads a program that must print these lines, among others."""

    def read(row, code, text):
        status(row, code, text)
        missing = [line for line in lines if line not in text.splitlines()]
        if row.passed and missing:
            row.passed, row.failed = 0, 1
            row.notes[f"does not print: {missing[0]}"] += 1

    return read


def sanitizer(row, code, text):
    """Reads a program under compute-sanitizer. Another part judges its own outcome."""
    # racecheck closes with "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)".
    found = re.findall(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
    if not found:
        row.failed = 1
        row.notes[f"no summary, exit status {code}: {last_line(text)}"] += 1
        return
    errors = sum(int(number or 0) for pair in found for number in pair)
    row.passed, row.failed = int(errors == 0), int(errors != 0)
    if errors:
        first = next((line for line in text.splitlines() if line.startswith("=========") and "Invalid" in line), "")
        row.notes[f"{errors} errors {first}"] += 1


def first_line(text):
    return (text or "no message").strip().splitlines()[0][:300]


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def run(part, limit):
    """Runs a part until it ends or its time is up, then ends all processes that it started."""
    row, start = Row(part.name), time.monotonic()
    try:
        process = subprocess.Popen(
            [str(word) for word in part.command],
            cwd=GPU,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        row.failed = 1
        row.notes[f"cannot be started: {error}"] += 1
        return row, str(error)
    try:
        text, _ = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        code = f"none, stopped after {limit:.0f} s"
    try:
        part.read(row, code, text)
    except Exception as error:  # the table is printed whatever a part has written
        row.failed += 1
        row.notes[f"its report cannot be read: {error!r}"] += 1
    if isinstance(code, str) and row.failed == 0:
        row.failed = 1
        row.notes[code] += 1
    row.seconds = time.monotonic() - start
    return row, text


def print_table(rows):
    width = max([len(row.part) for row in rows] + [10])
    print(f"\n{'part':<{width}} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for row in rows:
        print(f"{row.part:<{width}} {row.passed:>7} {row.failed:>7} {row.skipped:>8} {row.seconds:>8.1f}")
        ordered = sorted(row.notes.items(), key=lambda note: note[0].startswith("skipped"))
        for note, count in ordered[:12]:
            cells = [cell for cell in row.cells.get(note, []) if cell]
            where = f" [{', '.join(cells[:3])}{', ...' if len(cells) > 3 else ''}]" if cells else ""
            print(f"{'':<{width}}   {note}{where}{f' ({count} times)' if count > 1 else ''}")
        if len(ordered) > 12:
            print(f"{'':<{width}}   and {len(ordered) - 12} more, in the log")
    total = [sum(getattr(row, name) for row in rows) for name in ("passed", "failed", "skipped")]
    print(f"{'all':<{width}} {total[0]:>7} {total[1]:>7} {total[2]:>8} {sum(row.seconds for row in rows):>8.1f}")
    return total[1]


def main():
    groups = dict.fromkeys(part.group for part in parts(Path()))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(groups)}, or the beginning of a part's name")
    parser.add_argument("--limit", type=float, default=570, help="seconds for everything; what is left out is said")
    parser.add_argument("--jobs", type=int, default=1, help="so many parts at a time; what is timed runs alone, at the end")
    parser.add_argument("--list", action="store_true", help="name the parts and run none")
    arguments = parser.parse_args()
    out = os.environ.get("OUT")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(out) if out else Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        wanted = arguments.parts
        chosen = [p for p in parts(work) if not wanted or p.group in wanted or p.name.startswith(tuple(wanted))]
        if arguments.list:
            return print("\n".join(f"{part.group:<10} {part.name}" for part in chosen))
        if not chosen:
            sys.exit(f"nothing is called {' or '.join(wanted)}; `run.sh --list` names the parts")
        end = time.monotonic() + arguments.limit
        timed = [part for part in chosen if part.group in TIMED or part.name in TIMED]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            rows = list(pool.map(lambda part: finish(part, end, work), [part for part in chosen if part not in timed]))
        rows += [finish(part, end, work) for part in timed]
        sys.exit(1 if print_table(rows) else 0)


def finish(part, end, work):
    """Runs a part if time is left, keeps its log, and prints the outcome."""
    left = end - time.monotonic()
    if left < 5:
        return Row(part.name, failed=1, notes=Counter({"not run: no time was left": 1}))
    row, text = run(part, min(part.limit, left))
    (work / f"{part.name.replace(' ', '-').replace('/', '-')}.log").write_text(text, errors="replace")
    print(f"{part.name}: {row.passed} passed, {row.failed} failed, {row.skipped} skipped", flush=True)
    if part.group in ("speed", "processes") or part.name == "function_speed":
        print(text, flush=True)
    return row


if __name__ == "__main__":
    main()
