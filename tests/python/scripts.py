"""Runs test programs in their own process, for failures that would end the test: crashes, exits, unlimited memory
use.
"""

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CORPUS = HERE.parent / "conformance"

LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"


def run(program, *, timeout=60, limited=False):
    """Runs a Python program that can import the helpers of this folder and of the corpus. Returns its output, or fails with the end of
    it.
    """
    # The address sanitizer reserves far more addresses than it uses, and so does a free-threaded Python.
    reserves = "ASAN_OPTIONS" in os.environ or sysconfig.get_config_var("Py_GIL_DISABLED")
    limited = limited and os.name == "posix" and not reserves
    program = (LIMITED if limited else "") + textwrap.dedent(program)
    folders = [str(HERE), str(CORPUS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "RUST_BACKTRACE": "0"}
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


def resident():
    """The resident memory of the process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="no /proc, from which the size of the process is read"
)
