"""The kernels of the extension on each layout and type: each element is changed once, and nothing between the
elements.

Vectorized loads, the remainder at the end, and other element widths are separate code paths, which can be wrong
separately.
"""

import driver
import interop_demo
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

SIZE = 1 << 15
DTYPES = ["|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]

# The shape, the strides and the offset of the first element, in elements.
LAYOUTS = {
    "run": ((3001,), (1,), 0),
    "one element on": ((3001,), (1,), 1),
    "one": ((1,), (1,), 3),
    "no axes": ((), (), 5),
    "none": ((0, 4), (4, 1), 0),
    "transposed": ((40, 75), (1, 40), 0),
    "three axes, permuted": ((5, 16, 24), (16, 1, 80), 0),
    "four axes, permuted": ((3, 4, 16, 8), (32, 8, 96, 1), 0),
    "every second column": ((40, 30), (60, 2), 1),
    "padded rows": ((40, 64), (96, 1), 0),
    "padded rows, odd": ((40, 63), (67, 1), 0),
    "rows of a vector": ((300, 4), (8, 1), 0),
    "backwards": ((2000,), (-1,), 1999),
    "turned": ((40, 50), (-50, -1), 1999),
    "mirrored rows": ((40, 48), (48, -1), 47),
    "eight axes": ((2,) * 8, (6561, 2187, 729, 243, 81, 27, 9, 3), 0),
}


@pytest.fixture
def memory():
    driver.library()
    address = driver.alloc(8 * SIZE)
    yield address
    driver.synchronize()
    driver.free(address)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_element_once(memory, name, dtype):
    shape, strides, first = LAYOUTS[name]
    values = (np.arange(SIZE) % 23 - (0 if dtype[1] == "u" else 11)).astype(dtype)
    item = values.itemsize
    driver.write(memory, bytearray(values.tobytes()))
    places = [stride * item for stride in strides]
    array = driver.Interface(memory + first * item, shape, typestr=dtype, strides=tuple(places))
    expected = as_strided(values[first:], shape, places)
    assert interop_demo.checksum(array) == expected.sum(dtype="f8")
    # Near the limits of a byte, to which integers are clamped.
    expected[...] = expected * np.array(5, dtype)
    interop_demo.scale_(array, 5.0)
    found = np.frombuffer(driver.read(memory, SIZE * item), dtype)
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", [*DTYPES, "<c8", "<c16", "|b1"])
@pytest.mark.parametrize("count", [1, 7, 1030])
def test_filled(dtype, count):
    value = {"b": True, "c": 2 + 3j}.get(dtype[1], 3)
    array = interop_demo.Array.full((count,), value, dtype, device="cuda")
    facts = interop_demo.describe(array)
    driver.synchronize()
    found = np.frombuffer(driver.read(facts["data"], facts["nbytes"]), dtype)
    assert found.tolist() == [value] * count


@pytest.mark.parametrize(("dtype", "value", "factor", "expected"), [
    ("|u1", 200, 1.5, 255),
    ("|u1", 200, -1.0, 0),
    ("|i1", -100, 2.0, -128),
    ("<i4", -3, -1.5, 4),
    ("<i4", 7, float("nan"), 0),
    ("<u4", 4_000_000_000, 1.0, 4_000_000_000),
    ("<i8", 9_007_199_254_740_993, 3.0, 27_021_597_764_222_979),
    ("<u8", 2**63, 3.0, 2**64 - 1),
    ("<i8", -(2**62), 4.0, -(2**63)),
])  # fmt: skip
def test_integers_stay_within_their_type(memory, dtype, value, factor, expected):
    driver.write(memory, bytearray(np.array([value], dtype).tobytes()))
    interop_demo.scale_(driver.Interface(memory, (1,), typestr=dtype), factor)
    assert np.frombuffer(driver.read(memory, 8), dtype)[0] == expected
