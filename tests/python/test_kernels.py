"""`scale_` and `checksum` work in place on any array."""

from fractions import Fraction

import interop_demo
import numpy as np
import pytest
from capsules import Tensor

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
INTEGERS = ["|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8"]
FLOATS = ["<f2", "<f4", "<f8"]


# scale_


@pytest.mark.parametrize("dtype", FLOATS)
def test_scale_floats(dtype):
    array = np.arange(24).astype(dtype).reshape(4, 6)
    assert interop_demo.scale_(array, 2.5) is None
    assert np.array_equal(array, (np.arange(24) * 2.5).astype(dtype).reshape(4, 6))


@pytest.mark.parametrize("factor", [3, True, np.float32(0.5), np.int8(3), Fraction(1, 2), np.array(0.5), 2**200], ids=repr)
def test_factors(factor):
    array = np.ones(3)
    interop_demo.scale_(array, factor)
    assert array.tolist() == [float(factor)] * 3


@pytest.mark.parametrize("factor", [1j, np.complex64(1 + 2j), np.complex64(2), np.clongdouble(1 + 2j), np.array(1 + 2j)], ids=repr)
@pytest.mark.parametrize("dtype", ["<f4", "<c8"])
def test_a_factor_loses_no_imaginary_part(factor, dtype):
    array = np.ones(3, dtype)
    with pytest.raises(TypeError, match="`factor`: found a complex, allowed: a real number"):
        interop_demo.scale_(array, factor)
    assert array.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("factor", "error"), [("2", TypeError), (None, TypeError), (10**400, ArrayError)])
def test_bad_factors(factor, error):
    with pytest.raises(error, match="`factor`: found"):
        interop_demo.scale_(np.ones(3), factor)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_scale_integers(dtype):
    """Rounded towards zero and clamped to the range of the type."""
    limits = np.iinfo(dtype)
    array = np.array([0, 1, 2, 3, 7, limits.min, limits.max], dtype)
    interop_demo.scale_(array, 2.5)
    assert array[:5].tolist() == [0, 2, 5, 7, 17]
    assert array[5:].tolist() == [limits.min, limits.max]
    interop_demo.scale_(array, float("nan"))
    assert not array.any()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2], lambda a: a[::-1, ::-2], lambda a: a.T, lambda a: a[1:3, 2:4], lambda a: a[2, 3, ...],
        lambda a: a[:0], lambda a: a[:, :1], lambda a: a.reshape(2, 2, 2, 3)[:, 1],
    ],
)
def test_scale_touches_the_view_and_nothing_else(view):
    array = np.ones((4, 6))
    expected = array.copy()
    view(expected)[...] *= 3
    interop_demo.scale_(view(array), 3)
    assert np.array_equal(array, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones(3, "?"), lambda: Tensor(dtype=(17, 4, 1)).capsule(), lambda: Tensor(dtype=(10, 8, 1)).capsule(),
        lambda: Tensor(dtype=(3, 8, 8)).capsule(), lambda: Tensor(dtype=(2, 32, 4)).capsule(),
        lambda: Tensor(dtype=(99, 32, 1)).capsule(), lambda: Tensor("legacy").capsule(),
        lambda: Tensor(flags=1).capsule(), lambda: Tensor(strides=(0, 1)).capsule(),
        lambda: Tensor(strides=(1, 1)).capsule(), lambda: Tensor(strides=(2, 1)).capsule(),
        lambda: Tensor(device=(2, 0)).capsule(),
    ],
    ids=[
        "bool", "4-bits", "float8", "opaque", "lanes", "unknown", "legacy", "read-only", "zero-stride", "overlapping",
        "overlapping-rows", "cuda",
    ],
)
def test_scale_refuses(make):
    with pytest.raises(ArrayError):
        interop_demo.scale_(make(), 2.0)


@pytest.mark.parametrize("factor", [None, "2", 1j, [2.0], (), b"2"], ids=repr)
def test_bad_factors(factor):
    array = np.ones(3)
    with pytest.raises(TypeError):
        interop_demo.scale_(array, factor)
    assert array.sum() == 3


@pytest.mark.parametrize("dtype", ["<c8", "<c16"])
def test_complex_numbers(dtype):
    array = (np.arange(24) * (1 - 2j)).astype(dtype).reshape(4, 6)
    for view in (array, array[::-1, ::2], array.T, array[1, 1, ...], array[:0]):
        expected = view * 0.5
        interop_demo.scale_(view, 0.5)
        assert np.array_equal(view, expected)
        assert np.array_equal(interop_demo.twice(view), view + view)


def test_big_integers_scaled_by_one_stay():
    """An unchanged element must keep its value: 2**53 + 1 has no exact double."""
    array = np.array([2**53 + 1, -(2**62) - 1, 2**63 - 1], "<i8")
    expected = array.tolist()
    interop_demo.scale_(array, 1)
    assert array.tolist() == expected


# checksum


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "|b1"])
def test_checksum(dtype):
    array = (np.arange(24) % 7).astype(dtype).reshape(4, 6)
    for view in (
        array, array[::2], array[::-1, 1:4], array.T, array[1, 1, ...], array[:0], np.broadcast_to(array[0], (9, 6))
    ):
        found = interop_demo.checksum(view)
        assert type(found) is float
        assert found == float(view.sum(dtype="f8"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones(3, "<c16"),
        lambda: Tensor(dtype=(17, 4, 1)).capsule(),
        lambda: Tensor(dtype=(3, 8, 4)).capsule(),
        lambda: Tensor(dtype=(2, 32, 2)).capsule(),
        lambda: Tensor(dtype=(200, 32, 1)).capsule(),
        lambda: Tensor(device=(2, 0)).capsule(),
    ],
    ids=["complex", "4-bits", "opaque", "lanes", "unknown", "cuda"],
)
def test_checksum_refuses(make):
    with pytest.raises(ArrayError, match="dtype|device|libcuda"):
        interop_demo.checksum(make())


def test_bytes_that_are_no_bool():
    """Bug 99: a byte of 2 in a bool array is refused, and the same bytes as uint8 are read."""
    bytes_ = np.array([0, 1, 2], "|u1")
    assert interop_demo.checksum(bytes_) == 3
    # The message uses NumPy's name: Rust's u8 is eight bytes in NumPy.
    with pytest.raises(ArrayError, match="byte 2.*, allowed: 0 and 1; view the array as uint8"):
        interop_demo.checksum(bytes_.view("?"))
    assert interop_demo.describe(bytes_.view("?"))["dtype"] == "|b1"


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (2, 3), (3, 2)], ids=repr)
def test_a_trace(shape):
    """The sign is right: an empty sum is 0.0 and not -0.0."""
    matrix = np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    assert repr(interop_demo.trace(matrix)) == repr(float(matrix.trace(dtype=np.float64)))
