"""A C program that embeds Python and releases tensors on its own threads, also after the interpreter has ended (bug
52).
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import interop_demo
import native
import pytest

SOURCE = Path(__file__).parent / "programs/embedding.c"
LIBRARY = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "")


def missing():
    """Returns why the program cannot be compiled here, or `None`."""
    if os.name != "posix":
        return "no POSIX threads, which the program uses"
    if not sysconfig.get_config_var("Py_ENABLE_SHARED") or not LIBRARY.is_file():
        return f"this Python has no shared library to embed: {LIBRARY}"
    return native.missing()


@pytest.mark.skipif(missing() is not None, reason=f"a program that embeds Python cannot be made: {missing()}")
def test_a_host_program_lets_go_of_the_last_handle(tmp_path):
    program = tmp_path / "embedding"
    options = [f"-I{sysconfig.get_path('include')}", f"-I{native.HEADER.parent}", str(LIBRARY), f"-Wl,-rpath,{LIBRARY.parent}", "-lpthread"]
    subprocess.run([*native.C, "-std=c11", "-O1", str(SOURCE), *options, "-o", str(program)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(interop_demo.__file__).parent), "PYTHONHOME": sys.base_prefix}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    before, after_first, value, after_second, last = done.stdout.split()
    assert (int(before), float(value), float(last)) == (3, 2.5, 2.5), done.stdout
    assert (int(after_first), int(after_second)) == (2, 1), done.stdout
