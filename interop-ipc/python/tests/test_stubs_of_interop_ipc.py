"""The stubs match the module, and accept what callers may write."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("interop_ipc", reason="the module is one of Linux")


def test_types(tmp_path):
    pytest.importorskip("mypy")
    allowed = tmp_path / "allowed.txt"
    # Before Python 3.12 the method of the buffer protocol has no name. Generic classes are generic for type checkers alone.
    # In a wheel, maturin puts the module into a package of its name.
    allowed.write_text("interop_ipc\\.Parcel\\.(__buffer__|__class_getitem__)\ninterop_ipc\\.interop_ipc\n")
    commands = [
        ["mypy.stubtest", "interop_ipc", "--allowlist", str(allowed), "--ignore-unused-allowlist"],
        ["mypy", "--strict", str(Path(__file__).with_name("typed.py"))],
    ]
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
