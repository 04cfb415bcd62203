"""The type stubs match the module (mypy's stubtest compares them) and accept what callers may write."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "command",
    [
        # Before Python 3.12 the method of the buffer protocol has no name.
        ["mypy.stubtest", "interop_demo", "--allowlist", str(HERE / "stubs_allowed.txt"), "--ignore-unused-allowlist"],
        ["mypy", "--strict", str(HERE / "typed.py")],
    ],
    ids=["the-module", "its-callers"],
)
def test_types(command, tmp_path):
    pytest.importorskip("mypy")
    # In an empty folder, where only the installed stubs are found, and whose cache is deleted afterwards.
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
