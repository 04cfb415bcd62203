"""`parse_cai`: what the corpus (test_conformance.py) cannot say of strides: values of Python, and those that axes of one
element and arrays without elements get (R28 to R31, R85 to R89, bugs 62 to 95, 165).
"""

import interop_demo
import numpy as np
import pytest
from interfaces import ArrayError, assert_facts, assert_refused, dict_with, table

HUGE = 2**62
LOWEST = -(2**63)

# Changes of the dict, and the resulting strides in elements. Shape (2, 3) and "<f4" unless stated otherwise.
LEGAL = table(
    ("numpy-ints", {"strides": (np.int32(12), np.int64(4))}, (3, 1)),
    ("complex", {"typestr": "<c16", "strides": (16, 32)}, (1, 2)),
    ("60-axes", {"shape": (1,) * 59 + (4,), "strides": (4,) * 60}, (1,) * 60),
    # axes of extent 1 put no condition on their stride (bugs 72, 73, 75, 83)
    ("one-row-odd-stride", {"typestr": "<f8", "shape": (1, 10), "strides": (4, 8)}, (10, 1)),
    ("one-column-kept", {"shape": (3, 1), "strides": (4, 400)}, (1, 100)),
    ("one-negative-canonical", {"typestr": "<f8", "shape": (1, 10, 20), "strides": (-1600, 160, 8)}, (200, 20, 1)),
    ("one-zero", {"shape": (1, 3), "strides": (0, 4)}, (0, 1)),
    ("one-highest", {"shape": (1, 3), "strides": (HUGE, 4)}, (HUGE // 4, 1)),
    ("one-lowest", {"shape": (1, 3), "strides": (LOWEST, 4)}, (3, 1)),
    ("one-f-order", {"shape": (1024, 1), "strides": (4, 4096)}, (1, 1024)),
    ("one-c-order-4d", {"shape": (1, 1, 768, 768), "strides": (2359296, 2359296, 3072, 4)}, (589824, 589824, 768, 1)),
)

# An empty array has no elements, so any strides are valid (bugs 74, 76); shape (100, 0, 20). A stride that is no
# multiple of the item size, or that is negative, is replaced by another: `...` below.
EMPTY = table(
    ("compact", (80, 80, 4), (20, 20, 1)),
    ("zero", (0, 0, 0), (0, 0, 0)),
    ("no-multiples", (7, -3, 5), (..., ..., ...)),
    ("some-multiples", (20, 20, 1), (5, 5, ...)),
    ("negative", (-80, -80, -4), (..., ..., ...)),
    ("huge", (HUGE, HUGE, HUGE), (HUGE // 4,) * 3),
    ("lowest", (LOWEST, LOWEST, LOWEST), (..., ..., ...)),
)


@pytest.mark.parametrize(("changes", "strides"), LEGAL)
def test_legal(changes, strides):
    given = dict_with(data=(0x10000, False), **changes)
    typestr = given["typestr"]
    shape = tuple(given["shape"])
    size = int(typestr[2:])
    nbytes = size * int(np.prod(shape, dtype=object))
    assert_facts(
        interop_demo.parse_cai(given), dtype=typestr, shape=shape, strides=strides, data=0x10000, nbytes=nbytes
    )


@pytest.mark.parametrize(("given", "strides"), EMPTY)
@pytest.mark.parametrize("address", [0, 0x1000])
def test_empty(given, strides, address):
    found = interop_demo.parse_cai(dict_with(shape=(100, 0, 20), strides=given, data=(address, False)))
    assert all(step >= 0 for step in found["strides"])
    strides = tuple(step if known is ... else known for step, known in zip(found["strides"], strides, strict=True))
    assert_facts(found, shape=(100, 0, 20), strides=strides, data=0, nbytes=0)


ILLEGAL = table(
    ("too-many-70", {"strides": (4,) * 70}, ArrayError),
    ("set", {"strides": {12, 4}}, TypeError),
    ("array", {"strides": np.array([12, 4])}, TypeError),
    ("range", {"strides": range(12, 3, -8)}, TypeError),
)


@pytest.mark.parametrize(("changes", "error"), ILLEGAL)
def test_illegal(changes, error):
    assert_refused(dict_with(**changes), error, "strides")


def test_a_backwards_array_starts_at_its_first_element():
    """Bug 84: the address is that of element [0, 0], and the memory below it belongs to the array."""
    found = interop_demo.parse_cai(dict_with(data=(4096, False), strides=(-4088, -4)))
    assert_facts(found, data=4096, strides=(-1022, -1))
    with pytest.raises(ArrayError, match="strides"):
        interop_demo.parse_cai(dict_with(data=(4096, False), strides=(-4092, -4)))


@pytest.mark.parametrize("seed", range(20))
def test_views_of_numpy_arrays(seed):
    """R31: the result equals NumPy's description of a random view."""
    random = np.random.default_rng(seed)
    array = np.zeros(
        random.integers(1, 5, size=random.integers(1, 5)), dtype=random.choice(["<f4", "<i8", "|u1", "<c16"])
    )
    for axis in range(array.ndim):
        step = random.choice([-2, -1, 1, 2, 3])
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    array = array.transpose(random.permutation(array.ndim))
    interface = array.__array_interface__
    given = {
        **dict_with(typestr=array.dtype.str, strides=array.strides),
        "shape": array.shape,
        "data": interface["data"],
    }
    facts = interop_demo.parse_cai(given)
    assert facts["dtype"] == array.dtype.str
    assert facts["shape"] == array.shape
    assert facts["data"] == interface["data"][0]
    assert facts["nbytes"] == array.nbytes
    for axis, extent in enumerate(array.shape):
        assert extent == 1 or facts["strides"][axis] * array.itemsize == array.strides[axis]
