"""`parse_cai`: strides, and the memory range that they cover (R28 to R31, R85 to R89, bugs 62 to 95, 165)."""

import interop_demo
import numpy as np
import pytest
from interfaces import ABSENT, ArrayError, assert_facts, assert_refused, dict_with, table

HUGE = 2**62
LOWEST = -(2**63)

# Changes of the dict, and the resulting strides in elements. Shape (2, 3) and "<f4" unless stated otherwise.
LEGAL = table(
    # absent, None and explicit are the same (bugs 62, 64, 66)
    ("absent", {}, (3, 1)),
    ("none", {"strides": None}, (3, 1)),
    ("explicit-c", {"strides": (12, 4)}, (3, 1)),
    ("list", {"strides": [12, 4]}, (3, 1)),
    ("numpy-ints", {"strides": (np.int32(12), np.int64(4))}, (3, 1)),
    ("absent-item-size-of-the-source", {"typestr": "<c16"}, (3, 1)),
    ("absent-opaque-3", {"typestr": "|V3"}, (3, 1)),
    ("0d", {"shape": (), "strides": ()}, ()),
    ("0d-none", {"shape": (), "strides": None}, ()),
    # any layout that a view can have
    ("fortran", {"strides": (4, 8)}, (1, 2)),
    ("padded-rows", {"strides": (64, 4)}, (16, 1)),
    ("every-other", {"strides": (24, 8)}, (6, 2)),
    ("backwards", {"strides": (-12, 4)}, (-3, 1)),
    ("backwards-both", {"strides": (-12, -4)}, (-3, -1)),
    ("broadcast-rows", {"strides": (0, 4)}, (0, 1)),
    ("broadcast-all", {"strides": (0, 0)}, (0, 0)),
    ("overlapping", {"strides": (4, 4)}, (1, 1)),
    ("opaque-3", {"typestr": "|V3", "strides": (9, 3)}, (3, 1)),
    ("complex", {"typestr": "<c16", "strides": (16, 32)}, (1, 2)),
    ("bytes", {"typestr": "|u1", "strides": (7, 2)}, (7, 2)),
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
    # one for each axis (R30)
    ("too-few", {"strides": (4,)}, ArrayError, "strides"),
    ("too-many", {"strides": (24, 12, 4)}, ArrayError, "strides"),
    ("none-for-two-axes", {"strides": ()}, ArrayError, "strides"),
    ("one-for-0d", {"shape": (), "strides": (4,)}, ArrayError, "strides"),
    ("too-few-empty", {"shape": (0, 3), "strides": (4,)}, ArrayError, "strides"),
    ("too-many-70", {"strides": (4,) * 70}, ArrayError, "strides"),
    # multiples of the item size where it matters (R6, bug 67, 75)
    ("no-multiple-first", {"strides": (13, 4)}, ArrayError, "strides[0]"),
    ("no-multiple-last", {"strides": (12, 2)}, ArrayError, "strides[1]"),
    ("no-multiple-negative", {"strides": (-13, 4)}, ArrayError, "strides[0]"),
    ("no-multiple-one", {"strides": (12, 1)}, ArrayError, "strides[1]"),
    ("half-an-f8", {"typestr": "<f8", "shape": (2, 10), "strides": (4, 8)}, ArrayError, "strides[0]"),
    ("no-multiple-complex", {"typestr": "<c8", "strides": (12, 8)}, ArrayError, "strides[0]"),
    ("no-multiple-opaque", {"typestr": "|V3", "strides": (9, 4)}, ArrayError, "strides[1]"),
    # numbers
    ("float", {"strides": (12.0, 4)}, TypeError, "strides[0]"),
    ("bool", {"strides": (12, True)}, TypeError, "strides[1]"),
    ("str", {"strides": ("12", "4")}, TypeError, "strides[0]"),
    ("none-in", {"strides": (None, 4)}, TypeError, "strides[0]"),
    ("nested", {"strides": ((12,), 4)}, TypeError, "strides[0]"),
    ("int", {"strides": 4}, TypeError, "strides"),
    ("zero", {"strides": 0}, TypeError, "strides"),
    ("false", {"strides": False}, TypeError, "strides"),
    ("text", {"strides": "C"}, TypeError, "strides"),
    ("set", {"strides": {12, 4}}, TypeError, "strides"),
    ("dict", {"strides": {}}, TypeError, "strides"),
    ("array", {"strides": np.array([12, 4])}, TypeError, "strides"),
    ("range", {"strides": range(12, 3, -8)}, TypeError, "strides"),
    ("2**63", {"strides": (2**63, 4)}, ArrayError, "strides[0]"),
    ("below-lowest", {"strides": (LOWEST - 1, 4)}, ArrayError, "strides[0]"),
    ("2**64", {"strides": (2**64, 4)}, ArrayError, "strides[0]"),
    ("2**200", {"strides": (12, 2**200)}, ArrayError, "strides[1]"),
    # reach (R77, R89, bugs 89, 165)
    ("reach-above-2**63", {"strides": (HUGE, 4)}, ArrayError, "strides"),
    ("reach-sums-up", {"typestr": "|u1", "strides": (HUGE, HUGE // 2)}, ArrayError, "strides"),
    ("reach-lowest", {"strides": (LOWEST, 4)}, ArrayError, "strides"),
    ("reach-above-the-last-address", {"data": (2**64 - 16, False), "strides": (16, 4)}, ArrayError, "strides"),
    ("reach-below-the-first-address", {"strides": (-8192, 4)}, ArrayError, "strides"),
    ("reach-products-wrap", {"shape": (2**31, 2**31), "strides": (2**33, 1), "typestr": "|u1"}, ArrayError, "strides"),
)


@pytest.mark.parametrize(("changes", "error", "place"), ILLEGAL)
def test_illegal(changes, error, place):
    assert_refused(dict_with(**changes), error, place)


def test_a_backwards_array_starts_at_its_first_element():
    """Bug 84: the address is that of element [0, 0], and the memory below it belongs to the array."""
    found = interop_demo.parse_cai(dict_with(data=(4096, False), strides=(-4088, -4)))
    assert_facts(found, data=4096, strides=(-1022, -1))
    with pytest.raises(ArrayError, match="strides"):
        interop_demo.parse_cai(dict_with(data=(4096, False), strides=(-4092, -4)))


def test_the_three_spellings_of_c_order():
    """Bug 62, design 4: absent, None and explicit mean the same."""
    facts = [
        interop_demo.parse_cai(dict_with(shape=(4, 5, 6), strides=strides)) for strides in (ABSENT, None, (120, 24, 4))
    ]
    assert facts[0] == facts[1] == facts[2]
    assert facts[0]["strides"] == (30, 6, 1)


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
