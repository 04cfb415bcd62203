"""Measures the exchange between Python and Rust against hand-written C, nanobind and NumPy.

    cargo xtask bench-python [WORDS]

All numbers of a row come from one run, in which the columns take turns: one round of each column, repeatedly. A cell
is the median of its rounds, in processor time, so that other programs do not count. The C code checks nothing. A limit
compares columns of the same row. The last column states whether the limit holds; a limit that does not hold is a failure.

Two limits are goals for a machine with nothing else to do: a NumPy array as a typed view at 0.8 of nanobind's time, and a
round trip of one at 1.7. All others keep an exchange from becoming slower than it is.
"""

import argparse
import statistics
import sys
import time
from itertools import repeat
from pathlib import Path

import interop_demo
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import native

ROUNDS, CALLS = 60, 3000


class Interface:
    """An object with a ready interface dict, of an array whose memory is never accessed."""

    __cuda_array_interface__ = {
        "shape": (4, 4),
        "typestr": "<f4",
        "data": (0x7F0000000000, False),
        "version": 3,
        "strides": None,
        "stream": 1,
    }


def calls(function, *arguments):
    """Returns a round that calls `function(*arguments)` in a loop with almost no overhead."""

    def run():
        for _ in repeat(None, CALLS):
            function(*arguments)

    return run


def exports(array):
    """Returns a round of `array.__dlpack__(max_version=(1, 0))`, as consumers written in Python call it."""

    def run():
        for _ in repeat(None, CALLS):
            array.__dlpack__(max_version=(1, 0))

    return run


def interfaces(array):
    """Returns a round of `array.__cuda_array_interface__`."""

    def run():
        for _ in repeat(None, CALLS):
            array.__cuda_array_interface__

    return run


def trips(asarray, array):
    """Returns a round of imports from NumPy with `asarray` and back."""

    def run():
        for _ in repeat(None, CALLS):
            np.from_dlpack(asarray(array))

    return run


def once(function, *arguments):
    """Returns a round of a single call, for work that takes about a millisecond."""

    def run():
        function(*arguments)

    run.calls = 1
    return run


LAYOUTS = {
    "C order": lambda: np.ones((1000, 4000), np.float32),
    "F order": lambda: np.ones((4000, 1000), np.float32).T,
    "every second column": lambda: np.ones((1000, 8000), np.float32)[:, ::2],
    "padded rows": lambda: np.ones((1000, 4024), np.float32)[:, :4000],
    "backwards": lambda: np.ones((1000, 4000), np.float32)[::-1, ::-1],
}


def elements():
    """Yields rows for work on 16 MB of host `float32`, in the format of `rows`."""
    for layout, make in LAYOUTS.items():
        array, ours = make(), make()
        by_numpy = once(np.multiply, array, np.float32(0.5), array)
        yield f"scale_, {layout}", {"NumPy": by_numpy, "ours": once(interop_demo.scale_, ours, 0.5)}, 1.3, "NumPy"
        # Compared with NumPy's sum in double precision, because ours is in double precision too.
        by_numpy = once(lambda array=array: array.sum(dtype=np.float64))
        yield f"checksum, {layout}", {"NumPy": by_numpy, "ours": once(interop_demo.checksum, ours)}, 1.3, "NumPy"
        exported = interop_demo.asarray(ours)
        by_numpy = once(lambda array=array: array.copy(order="C"))
        copied = once(lambda exported=exported: exported.__dlpack__(copy=True, max_version=(1, 0)))
        yield f"copy=True, {layout}", {"NumPy": by_numpy, "ours": copied}, 1.3, "NumPy"


def rows(c, dicts, nanobind):
    """Yields `(what, {column: round}, limit, beside)`: ours is at most `limit` times the column `beside`."""
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    ours = interop_demo.asarray(array)
    on_gpu = interop_demo.asarray(c.imagined())
    offered = c.Array()
    yield (
        "import of a NumPy array, typed 2-d view",
        {
            "C": calls(c.is_square, array),
            "nanobind": calls(nanobind.is_square, array),
            "ours": calls(interop_demo.is_square, array),
        },
        0.8,
        "nanobind",
    )
    yield (
        "__dlpack__(max_version=(1, 0))",
        {"C": exports(offered), "NumPy": exports(array), "ours": exports(ours)},
        3,
        "NumPy",
    )
    yield (
        "NumPy, somebody, NumPy",
        {
            "C": trips(c.asarray, array),
            "nanobind": trips(nanobind.asarray, array),
            "ours": trips(interop_demo.asarray, array),
        },
        1.7,
        "nanobind",
    )
    by_dict = {"C": interfaces(dicts.Array()), "ours": interfaces(on_gpu)}
    yield "__cuda_array_interface__", by_dict, 2.3, "C"
    from_dict = {
        "C": calls(dicts.nbytes, Interface()),
        "ours": calls(interop_demo.interface_nbytes, Interface()),
    }
    yield "a ready interface dict, validated", from_dict, 2.4, "C"
    by_table = {
        "C": calls(c.is_square_by_table, offered),
        "nanobind": calls(nanobind.is_square, offered),
        "ours": calls(interop_demo.is_square, offered),
    }
    yield "import by exchange table, typed 2-d view", by_table, 1.8, "nanobind"
    yield from elements()
    result = {"nanobind": calls(nanobind.doubled, array), "NumPy": calls(array.__add__, array)}
    yield "NumPy in, NumPy out: typed, in Rust's memory", result | {"ours": calls(interop_demo._doubled, array)}, 1.3, "nanobind"
    yield "NumPy in, NumPy out: twice, any type", result | {"ours": calls(interop_demo.twice, array)}, 1.3, "nanobind"


def measure(columns, rounds):
    """Returns the median nanoseconds per call for each column."""
    times = {name: [] for name in columns}
    for _ in range(rounds):
        for name, run in columns.items():
            start = time.thread_time_ns()
            run()
            times[name].append((time.thread_time_ns() - start) / getattr(run, "calls", CALLS))
    return {name: statistics.median(rounds) for name, rounds in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="rows whose name contains this")
    parser.add_argument("--once", action="store_true", help="one round of each row, without limits")
    arguments = parser.parse_args()
    only, rounds = arguments.only, 1 if arguments.once else ROUNDS
    if why := native.missing():
        sys.exit(f"the benchmarks compile modules to compare with: {why}")
    c, dicts, nanobind = (native.load(name) for name in ("handwritten", "dicts", "nanobind_arrays"))
    names = ["C", "nanobind", "NumPy", "ours"]
    print(f"{'nanoseconds':<42}" + "".join(f"{name:>10}" for name in names) + f"{'limit':>18}")
    late = 0
    for what, columns, limit, beside in rows(c, dicts, nanobind):
        if only not in what:
            continue
        found = measure(columns, rounds)
        most = limit * found[beside]
        cells = "".join(f"{found[name]:>10.0f}" if name in found else f"{'':>10}" for name in names)
        rule = f"{limit} x {beside}"
        late += found["ours"] > most
        print(f"{what:<42}{cells}{rule:>18} {'holds' if found['ours'] <= most else 'MISSED'}")
    if late and not arguments.once:
        sys.exit(f"\n{late} limits missed")


if __name__ == "__main__":
    main()
