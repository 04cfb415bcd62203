"""A million round trips in a separate process (bug 61); `cargo xtask soak-python` makes ten million."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tests/benches/python/soak.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no Linux: the memory of the process is read from /proc")
def test_the_memory_of_the_process_stays_what_it_was():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "1"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
