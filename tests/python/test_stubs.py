"""The type stubs say what the module has (mypy's stubtest compares them), and what its callers may write."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "command",
    [["mypy.stubtest", "interop_demo"], ["mypy", "--strict", str(HERE / "typed.py")]],
    ids=["the-module", "its-callers"],
)
def test_types(command, tmp_path):
    pytest.importorskip("mypy")
    # In an empty folder, where nothing but the installed stubs is found, and the cache is gone afterwards.
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
