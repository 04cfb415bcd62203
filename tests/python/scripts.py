"""Programs of their own, for what a test does not survive when it fails: crashes, exits, memory without end."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent

LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"


def run(program, *, timeout=60, limited=False):
    """Runs a Python program that finds the helpers of this folder; gives what it printed, or fails with its end."""
    program = (LIMITED if limited and os.name == "posix" else "") + textwrap.dedent(program)
    environment = {**os.environ, "PYTHONPATH": str(HERE), "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout
