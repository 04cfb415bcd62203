"""Ten thousand random shapes and strides in each run, compared with NumPy (R85, R86, R89, R128, bugs 63 to 89)."""

import interop_demo
import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided
from seeds import generator
from test_numpy import DTYPES, NUMBERS, address
from test_slicing import random_key, view_of

ARRAYS = 10_000
MEMORY = np.arange(1 << 14, dtype="u1")


def random_array(random):
    """A view of `MEMORY` with any strides within it: also empty, 0-d, repeated, overlapping and reversed."""
    dtype = np.dtype(random.choice(DTYPES))
    axes = [
        (random.choice([0, 1, 1, 2, 3, 4, 7]), random.choice([0, 1, -1, 2, -3, random.randint(-40, 40)]))
        for _ in range(random.choice([0, 1, 2, 2, 3, 3, 4, 5, 6, 7]))
    ]
    low = dtype.itemsize * sum(min(0, (extent - 1) * step) for extent, step in axes if extent)
    high = dtype.itemsize * (1 + sum(max(0, (extent - 1) * step) for extent, step in axes if extent))
    # The first element is anywhere where all others fit, with the alignment of the memory itself.
    places = (MEMORY.nbytes - high + low) // dtype.itemsize
    if places < 0:
        return random_array(random)
    first = -low + dtype.itemsize * random.randint(0, places)
    start = MEMORY[first : first + dtype.itemsize].view(dtype)
    shape, steps = zip(*axes, strict=True) if axes else ((), ())
    strides = [step * dtype.itemsize for step in steps]
    return as_strided(start, shape, strides, writeable=random.random() < 0.7)


def same_strides(array, found):
    """Returns whether strides in bytes equal those of an array, except where they have no meaning."""
    idle = array.size == 0
    pairs = zip(array.shape, array.strides, found, strict=True)
    return all(idle or extent == 1 or mine == theirs for extent, mine, theirs in pairs)


def check_described(array):
    """Compares Rust's description of a NumPy array."""
    facts = interop_demo.describe(array)
    assert facts["dtype"] == array.dtype.str
    assert facts["shape"] == array.shape
    assert facts["nbytes"] == array.nbytes
    assert facts["readonly"] is not array.flags.writeable
    assert facts["data"] == (address(array) if array.size else 0)
    assert same_strides(array, [step * array.itemsize for step in facts["strides"]])


def check_there_and_back(array):
    """Compares NumPy's import of an array that Rust imported from NumPy."""
    ours = interop_demo.asarray(array)
    back = np.from_dlpack(ours)
    assert (ours.shape, ours.ndim, ours.size, ours.nbytes) == (array.shape, array.ndim, array.size, array.nbytes)
    assert same_strides(array, ours.strides)
    assert (back.shape, back.dtype) == (array.shape, array.dtype)
    assert same_strides(array, back.strides)
    # For a tensor without elements NumPy creates its own array.
    assert array.size == 0 or back.flags.writeable == array.flags.writeable
    for flag in ("c_contiguous", "f_contiguous", "aligned"):
        assert getattr(back.flags, flag) == getattr(array.flags, flag), flag
    if array.size:
        assert byte_bounds(back) == byte_bounds(array)
    assert back.tobytes() == array.tobytes()
    return ours


def check_interface(array):
    """The same array as an interface dict: NumPy's own CPU dict, read as a CUDA dict."""
    interface = array.__array_interface__
    found = interop_demo.parse_cai({**interface, "version": 3})
    assert (found["shape"], found["dtype"], found["nbytes"]) == (array.shape, array.dtype.str, array.nbytes)
    assert found["readonly"] is interface["data"][1]
    assert same_strides(array, [step * array.itemsize for step in found["strides"]])


def test_random_arrays():
    random = generator()
    for number in range(ARRAYS):
        array = random_array(random)
        try:
            check_described(array)
            ours = check_there_and_back(array)
            check_interface(array)
            key = random_key(random, array.shape)
            view, expected = ours[key], view_of(array, key)
            assert view.shape == expected.shape
            assert same_strides(expected, view.strides)
            assert np.from_dlpack(view).tobytes() == expected.tobytes()
        except AssertionError as error:
            layout = f"shape {array.shape}, strides {array.strides}, {array.dtype}, {array.flags.writeable=}"
            raise AssertionError(f"array {number}: {layout}") from error


def test_random_arrays_of_ours():
    """Our own strides, compared with those of NumPy for the same shape."""
    random = generator()
    for _ in range(ARRAYS // 5):
        shape = tuple(random.choice([0, 1, 2, 3, 5]) for _ in range(random.randrange(8)))
        order, dtype = random.choice("CF"), random.choice(NUMBERS)
        ours = interop_demo.Array.full(shape, 1, dtype, order=order)
        twin = np.full(shape, 1, dtype, order=order)
        seen = np.from_dlpack(ours)
        assert same_strides(twin, ours.strides), (shape, order)
        assert (seen.flags.c_contiguous, seen.flags.f_contiguous) == (twin.flags.c_contiguous, twin.flags.f_contiguous)
        assert seen.tobytes() == twin.tobytes()
