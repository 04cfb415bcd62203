"""The oldest NumPy with a wheel for this Python: 1.23, the first with `from_dlpack`, up to Python 3.11.

It requests capsules without a version and passes `stream` as the only keyword.
"""

import sys
from pathlib import Path

import pytest
from scripts import run

FOLDER = Path(sys.prefix) / "oldest"

if not FOLDER.exists():
    pytest.skip("the oldest NumPy is not installed; `cargo xtask test python` does so", allow_module_level=True)

HEAD = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import interop_demo
import numpy as np
assert np.__file__.startswith({str(FOLDER)!r}), np.__file__
V2 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
"""


def oldest(body):
    """Runs a program with that NumPy."""
    run(HEAD + body)


def test_numpy_to_rust():
    oldest("""
array = np.arange(12.0).reshape(3, 4)[::-1, ::2]
facts = interop_demo.describe(array)
assert facts["protocol"] == ("dlpack_versioned" if V2 else "dlpack"), facts
assert facts["data"] == array.__array_interface__["data"][0]
assert facts["strides"] == (-4, 2) and facts["shape"] == (3, 2)
assert interop_demo.checksum(array) == array.sum() == 30
# The legacy form cannot say that writing is allowed.
assert facts["readonly"] == (not V2)
""")


def test_rust_to_numpy():
    oldest("""
for dtype in ("|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"):
    ours = interop_demo.Array.full((2, 3), 2, dtype)
    theirs = np.from_dlpack(ours)
    assert theirs.__array_interface__["data"][0] == interop_demo.describe(ours)["data"]
    assert theirs.dtype.str == dtype and theirs.sum() == 12
    assert np.shares_memory(np.asarray(ours), theirs)
    # Before 2.2.5 NumPy takes every array for a read-only one (numpy/numpy#28599), but not what comes by the buffer protocol.
    assert theirs.flags.writeable == (np.lib.NumpyVersion(np.__version__) >= "2.2.5")
    assert np.asarray(ours).flags.writeable
strided = np.from_dlpack(interop_demo.Array.full((4, 6), 1.0)[1:, ::-2])
assert strided.strides == (24, -8) and strided.sum() == 9
""")


def test_read_only_arrays():
    """Read-only arrays of ours are refused in a legacy capsule, with a message; NumPy refuses its own."""
    oldest("""
import re

def refused(function, argument):
    try:
        function(argument)
    except (BufferError, TypeError) as error:
        return re.search("read-?only|writeable", str(error))

ours, theirs = interop_demo.Array.full((2,), 1.0, readonly=True), np.zeros(2)
theirs.flags.writeable = False
if V2:
    assert not np.from_dlpack(ours).flags.writeable and interop_demo.describe(theirs)["readonly"]
else:
    assert refused(np.from_dlpack, ours) and refused(interop_demo.describe, theirs)
    # A capsule without a version came from somebody who may not write: it goes on as read-only.
    assert refused(np.from_dlpack, interop_demo.asarray(np.ones(2)))
""")


def test_what_needs_no_capsule():
    """Numbers, and an explicit `__array__`: its `from_dlpack` accepts no bools and no read-only arrays."""
    oldest("""
for readonly in (False, True):
    full = lambda *arguments: interop_demo.Array.full((), *arguments, readonly=readonly)
    assert bool(full(True, "|b1")) is True and float(full(2.5)) == 2.5 and int(full(3, "<i4")) == 3
    array = full(2.5)
    assert array.__array__().flags.writeable == (not readonly)
    assert np.shares_memory(array.__array__(copy=False), np.asarray(array))
    assert not np.shares_memory(array.__array__(copy=True), np.asarray(array))
    assert array.__array__("<f8").dtype == array.__array__(dtype="<f8", copy=None).dtype == "<f8"
    try:
        array.__array__("<f8", copy=False)
    except ValueError as error:
        assert "copy" in str(error)
    else:
        raise AssertionError("a copy after all")
""")


def test_imports_leave_nothing():
    oldest("""
import gc
array = np.ones((4, 4), np.float32)
references = sys.getrefcount(array)
for _ in range(10_000):
    interop_demo.asarray(array)
    np.from_dlpack(interop_demo.Array.full((4,), 1.0))
gc.collect()
assert sys.getrefcount(array) == references
assert interop_demo.live_exports() == interop_demo.pending_releases() == 0
""")
