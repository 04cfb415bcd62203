"""Older versions of NumPy, each in a folder of its own: 1.26 and 2.0, and the oldest with a wheel for this Python (up to
Python 3.11 it is 1.23, the first with `from_dlpack`).

Before 2.1 they request capsules without a version, pass `stream` as the only keyword, and refuse to export read-only
arrays.
"""

import sys
from pathlib import Path

import pytest
from scripts import run

VERSIONS = ["oldest", "1.26", "2.0"]

HEAD = """
import sys
sys.path.insert(0, FOLDER)
import interop_demo
import numpy as np
assert np.__file__.startswith(FOLDER), np.__file__
V2 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"

def refused(function, argument, words):
    try:
        function(argument)
    except (BufferError, TypeError) as error:
        import re
        return re.search(words, str(error))
"""


@pytest.fixture(params=VERSIONS)
def with_numpy(request):
    """A function that runs a program with this NumPy."""
    folder = Path(sys.prefix) / "numpy" / request.param
    if not folder.exists():
        pytest.skip(f"NumPy {request.param} is not installed, or has no wheel for this Python; `cargo xtask test python` installs it")
    return lambda body: run(HEAD.replace("FOLDER", repr(str(folder))) + body)


def test_numpy_to_rust(with_numpy):
    with_numpy("""
array = np.arange(12.0).reshape(3, 4)[::-1, ::2]
facts = interop_demo.describe(array)
assert facts["protocol"] == "numpy", facts
assert facts["data"] == array.__array_interface__["data"][0]
assert facts["strides"] == (-4, 2) and facts["shape"] == (3, 2)
assert interop_demo.checksum(array) == array.sum() == 30
assert not facts["readonly"]
""")


def test_rust_to_numpy(with_numpy):
    with_numpy("""
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


def test_read_only_arrays(with_numpy):
    """A legacy capsule cannot carry one: ours are refused with a message, and NumPy's come in without a capsule."""
    with_numpy("""
ours, theirs = interop_demo.Array.full((2,), 1.0, readonly=True), np.ones(2)
theirs.flags.writeable = False
facts = interop_demo.describe(theirs)
assert facts["readonly"] and facts["data"] == theirs.__array_interface__["data"][0]
assert facts["protocol"] == "numpy"
assert interop_demo.checksum(np.broadcast_to(2.0, (3,))) == 6
assert interop_demo.checksum(theirs[::-1]) == 2
assert refused(lambda array: interop_demo.scale_(array, 2.0), theirs, "read-only array, allowed: a writable array")
assert np.asarray(interop_demo.asarray(theirs)).flags.writeable is False
if V2:
    assert not np.from_dlpack(ours).flags.writeable
else:
    assert refused(np.from_dlpack, ours, "read-?only")
""")


def test_arrays_that_are_written(with_numpy):
    with_numpy("""
class Own(np.ndarray):
    pass

for array in (np.ones(4), np.ones((3, 4)).T, np.ones(4)[::2], np.ones(4).view(Own), np.ones(0)):
    interop_demo.scale_(array, 2.0)
    assert (array == 2).all()
    shared = np.from_dlpack(interop_demo.asarray(array))
    assert array.size == 0 or np.shares_memory(array, shared)
""")


def test_flags(with_numpy):
    """Before 1.25 NumPy exports no bools."""
    with_numpy("""
flags = np.array([True, False, True])
facts = interop_demo.describe(flags)
assert interop_demo.checksum(flags) == 2 and (facts["protocol"], facts["readonly"]) == ("numpy", False)
""")


def test_arrays_of_a_capsule(with_numpy):
    """NumPy's `__dlpack__` is called for these: it knows the device. Before 2.1 without a version."""
    with_numpy("""
array = np.from_dlpack(interop_demo.Array.full((3,), 2.0))
facts = interop_demo.describe(array)
known = ("dlpack_versioned" if V2 else "dlpack") if array.flags.writeable or V2 else "buffer"
assert facts["protocol"] == known, facts
assert interop_demo.checksum(array) == 6
""")


def test_each_layout_is_that_of_the_capsule(with_numpy):
    with_numpy("""
class Speaker:
    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

class Own(np.ndarray):
    pass

whole = np.arange(24, dtype="i4").reshape(2, 3, 4)
for array in (whole, whole[::-1, :, ::2], whole.T, whole[1, 1, 2, ...], whole[:, :0], whole.view(Own), whole.astype("c16"), whole.astype("l"), whole.astype("q")):
    read, asked = interop_demo.describe(array), interop_demo.describe(Speaker(array))
    assert read.pop("protocol") == "numpy" and asked.pop("protocol") == ("dlpack_versioned" if V2 else "dlpack")
    # A legacy capsule cannot say that it may be written, and has no strides for a contiguous array.
    assert read.pop("readonly") is False and asked.pop("readonly") is not V2
    if array.size == 0:
        assert len(read.pop("strides")) == len(asked.pop("strides"))
    assert read == asked, (read, asked)
""")


def test_what_numpy_refuses_stays_refused(with_numpy):
    with_numpy("""
class Closed(np.ndarray):
    def __dlpack__(self, **keywords):
        raise BufferError("closed")

assert refused(interop_demo.describe, np.ones(2).view(Closed), "^closed")
for array in (np.ones(2, ">f8"), np.array([None]), np.array(["a"])):
    assert refused(interop_demo.describe, array, "byte order of this machine|numbers")
for dates in (np.zeros(2, "M8[s]"), np.zeros(2, "m8[ns]")):
    assert refused(interop_demo.describe, dates, 'dates and times.*x.view."i8".*numpy.ndarray')
    assert interop_demo.describe(dates.view("i8"))["dtype"] == "<i8"
assert interop_demo.describe(np.zeros(2, "i4,f4"))["dtype"] == "|V8"
""")


def test_the_references_of_an_array_that_came_by_its_buffer(with_numpy):
    with_numpy("""
array = np.ones(2)
array.flags.writeable = False
references = sys.getrefcount(array)
ours = interop_demo.asarray(array)
assert sys.getrefcount(array) > references
del ours
interop_demo.poll_releases()
assert sys.getrefcount(array) == references
""")


def test_what_needs_no_capsule(with_numpy):
    """The buffer, and `__array__` of a returned array: its `from_dlpack` accepts no bools and no read-only arrays."""
    with_numpy("""
for readonly in (False, True):
    full = lambda *arguments: interop_demo.Array.full((), *arguments, readonly=readonly)
    assert np.asarray(full(True, "|b1")) == True and np.asarray(full(2.5)) == 2.5 and np.asarray(full(3, "<i4")) == 3
    array = interop_demo._exported(full(2.5))
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


def test_imports_leave_nothing(with_numpy):
    with_numpy("""
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


def test_its_own_tests_of_dlpack_with_each_array_passed_on(with_numpy):
    with_numpy("""
import pathlib
import pytest

from_dlpack, own = np.from_dlpack, pathlib.Path(np.__file__).parent
np.from_dlpack = lambda array, **wishes: from_dlpack(interop_demo.asarray(array) if isinstance(array, np.ndarray) else array, **wishes)
suite = next(own.glob("*core/tests/test_dlpack.py"))
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", "--rootdir", str(own), str(suite)]))
""")
