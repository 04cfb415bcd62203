"""How the runner of the GPU tests judges the outcome of a part, which otherwise only runs on a GPU machine."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("gpu_run", ROOT / "tests/gpu/run.py")
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks up its module.
    sys.modules["gpu_run"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gpu_run"]


def examples():
    programs = [program.stem for program in sorted((ROOT / "examples/cuda/src/bin").glob("*.rs"))]
    scripts = [program.name for program in sorted((ROOT / "examples").glob("*.py"))]
    scripts.remove("new_project.py")  # It makes projects of the templates beside it.
    return programs + scripts


@pytest.mark.parametrize("example", examples())
def test_the_page_says_what_an_example_prints(runner, example):
    lines = runner.promised(example)
    assert all(lines) and bool(lines) == (example != "bandwidth"), lines


def test_an_example_that_prints_something_else_fails(runner):
    def judged(code, text):
        row = runner.Row("example")
        runner.printed(["0 wrong", "in place"])(row, code, text)
        return row.passed, row.failed, row.skipped, list(row.notes)

    assert judged(0, "a warning\n0 wrong\nin place\n") == (1, 0, 0, [])
    assert judged(0, "10 wrong\nin place\n") == (0, 1, 0, ["does not print: 0 wrong"])
    assert judged(0, "skipped: needs a GPU\n") == (0, 0, 1, ["skipped: needs a GPU"])
    assert judged(1, "0 wrong\nin place\n") == (0, 1, 0, ["exit status 1: in place"])


def test_an_example_that_the_page_does_not_know_is_told_of(runner):
    with pytest.raises(LookupError, match="says nothing of nothing"):
        runner.promised("nothing")
