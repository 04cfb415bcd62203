"""NumPy and Rust on the same memory, in both directions (R128, R175, R176, bugs 79 to 84, 99, 131 to 136)."""

import interop_demo
import numpy as np
import pytest
from interfaces import types_of
from scripts import needs_proc, resident

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError

NUMBERS = ["|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]
DTYPES = ["|b1", *NUMBERS, "<c8", "<c16"]

# NumPy views of 24 elements in a writable (4, 6) array.
LAYOUTS = {
    "plain": lambda a: a,
    "0d": lambda a: a[1, 2, ...],
    "1d": lambda a: a[1],
    "column": lambda a: a[:, 3],
    "empty": lambda a: a[2:2],
    "empty-middle": lambda a: a[:, 3:3][:, :, None],
    "fortran": lambda a: a.T,
    "fortran-copy": lambda a: np.asfortranarray(a),
    "every-other": lambda a: a[::2, ::3],
    "backwards": lambda a: a[::-1, ::-1],
    "backwards-rows": lambda a: a[::-1],
    "ones": lambda a: a[1:2, None, 3:4],
    "ones-between": lambda a: a[:, None, :, None],
    "5d": lambda a: a.reshape(2, 2, 1, 3, 2).transpose(3, 0, 4, 2, 1),
    "overlapping": lambda a: np.lib.stride_tricks.as_strided(a, (3, 4), (a.itemsize, a.itemsize)),
}


def numbered(dtype, shape=(4, 6)):
    return np.arange(24).reshape(shape).astype(dtype)


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_and_back(dtype, layout):
    """Rust describes NumPy's arrays, and NumPy imports Rust's in place."""
    array = LAYOUTS[layout](numbered(dtype))
    facts = interop_demo.describe(array)
    assert facts["device"] == (1, 0)
    assert facts["dtype"] == array.dtype.str
    assert facts["shape"] == array.shape
    assert facts["nbytes"] == array.nbytes
    assert facts["readonly"] is False
    assert facts["stream"] is None
    assert facts["protocol"] == "numpy"
    assert facts["data"] == (address(array) if array.size else 0)
    strides = facts["strides"]
    assert all(
        extent == 1 or array.size == 0 or step * array.itemsize == real
        for extent, step, real in zip(array.shape, strides, array.strides, strict=True)
    )
    assert {name: types_of(facts[name]) for name in ("shape", "strides", "data", "nbytes", "readonly")} == {
        "shape": (tuple, *[int] * array.ndim),
        "strides": (tuple, *[int] * array.ndim),
        "data": int,
        "nbytes": int,
        "readonly": bool,
    }
    back = np.from_dlpack(interop_demo.asarray(array))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert np.array_equal(back, array)
    assert back.flags.writeable
    if array.size:
        assert address(back) == address(array)
        back[...] = 0
        assert not array.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_only_stays_read_only(dtype):
    array = numbered(dtype)
    array.flags.writeable = False
    for source in (array, array[::2], array.T, array[1, 1, ...], array[:0], np.broadcast_to(array[0], (7, 6))):
        assert interop_demo.describe(source)["readonly"] is True
        again = interop_demo.asarray(interop_demo.asarray(source))
        assert interop_demo.describe(again)["readonly"] is True
        again = np.from_dlpack(again)
        # For an array without elements NumPy creates its own, which is writable.
        assert again.flags.writeable is (source.size == 0)
        assert np.array_equal(again, source)
        with pytest.raises(ArrayError):
            interop_demo.scale_(source, 2.0)


@pytest.mark.parametrize("dtype", ["|b1", *NUMBERS])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (5,), (0,), (2, 3), (2, 0, 3), (2, 3, 4)], ids=repr)
def test_full(dtype, order, shape):
    array = Array.full(shape, 1, dtype, order=order)
    seen = np.from_dlpack(array)
    expected = np.full(shape, 1, dtype, order=order)
    assert seen.dtype == expected.dtype
    assert np.array_equal(seen, expected)
    assert seen.size == 0 or seen.strides == expected.strides
    assert seen.flags.writeable
    assert seen.size == 0 or address(seen) == interop_demo.describe(array)["data"]
    assert interop_demo.checksum(array) == expected.size
    seen[...] = 0
    assert interop_demo.checksum(array) == 0


def test_numpy_asks_as_it_likes():
    """The keywords that `np.from_dlpack` passes."""
    array = Array.full((2, 3), 1.5)
    where = interop_demo.describe(array)["data"]
    assert address(np.from_dlpack(array, device="cpu")) == where
    assert address(np.from_dlpack(array, copy=False)) == where
    assert address(np.from_dlpack(array, copy=None)) == where
    copied = np.from_dlpack(array, copy=True)
    assert address(copied) != where
    copied[...] = 7
    assert interop_demo.checksum(array) == 9
    assert address(np.asarray(np.from_dlpack(array))) == where


def test_what_numpy_refuses_is_explained():
    """Bugs 73, 106, 149: foreign byte order, strings, objects, dates. The exception of NumPy is the cause."""
    for dtype in (">f4", ">i8", "S4", "U4", "O", "M8[s]", "m8[s]", "longdouble"):
        with pytest.raises(ArrayError, match=r"\(from numpy.ndarray\)$") as caught:
            interop_demo.describe(np.zeros(3, dtype))
        assert type(caught.value.__cause__) is BufferError


@pytest.mark.skipif(not hasattr(np.dtypes, "register_dlpack_dtype"), reason="this NumPy has no `register_dlpack_dtype`; 2.5 has")
def test_types_that_other_packages_register():
    """In both directions, in place. No other test uses this type, because it stays registered."""
    dtype = np.dtype(pytest.importorskip("ml_dtypes").float8_e3m4)
    np.dtypes.register_dlpack_dtype((7, 8), dtype)
    source = np.ones((4, 3), dtype)[::2, 1:]
    array = interop_demo.asarray(source)
    assert (array.dtype, array.shape, array.strides) == ("float8_e3m4", source.shape, source.strides)
    seen = np.asarray(array)
    assert (seen.dtype, address(seen), float(array[1, 1])) == (dtype, address(source), 1)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_numpy_classes():
    """Subclasses, masked arrays, NumPy scalars."""
    assert interop_demo.describe(np.matrix([[1.0, 2.0]]))["shape"] == (1, 2)
    assert interop_demo.checksum(np.ma.array([1.0, 2.0])) == 3
    assert interop_demo.checksum(type("Mine", (np.ndarray,), {})((2,), "f8", np.array([1.0, 2.0]))) == 3
    assert interop_demo.describe(np.float32(3))["shape"] == ()


@pytest.mark.parametrize("function", [interop_demo.asarray, interop_demo.describe, interop_demo.is_square])
def test_masked_elements(function):
    """R38: `__dlpack__` exports a masked array without its mask, which would expose all elements."""
    array = np.ma.array(np.ones((2, 2), "f4"), mask=[[True, False], [False, False]])
    with pytest.raises(ArrayError, match=r"masked elements.*call `filled\(\)` first.*MaskedArray"):
        function(array)
    function(array.filled(0))
    array.mask = False
    function(array)
    derived = type("Derived", (np.ma.MaskedArray,), {})(np.ones(3), mask=[False, True, False])
    with pytest.raises(ArrayError, match="masked elements.*Derived"):
        function(derived)


def test_a_mask_of_another_kind():
    """`mask` and `filled` may be anything in another class."""
    for mask in (None, 1, "any", lambda self: True, property(lambda self: 1 / 0)):
        other = type("Other", (np.ndarray,), {"mask": mask, "filled": None})((2,), "f8", np.array([1.0, 2.0]))
        if isinstance(mask, property):
            with pytest.raises(ZeroDivisionError):
                interop_demo.checksum(other)
        else:
            assert interop_demo.checksum(other) == 3
    alone = type("Other", (np.ndarray,), {"mask": np.ones(2, "?")})((2,), "f8", np.array([1.0, 2.0]))
    assert interop_demo.checksum(alone) == 3


def test_broadcast_arrays_cannot_be_scaled():
    """Bug 91: two indices share an element; reading is allowed."""
    base = np.arange(4.0)
    overlapping = np.lib.stride_tricks.as_strided(base, (2, 3), (8, 8), writeable=True)
    assert interop_demo.checksum(overlapping) == 0 + 1 + 2 + 1 + 2 + 3
    with pytest.raises(ArrayError, match="strides"):
        interop_demo.scale_(overlapping, 2.0)
    zero = np.lib.stride_tricks.as_strided(base, (5,), (0,), writeable=True)
    assert interop_demo.describe(zero)["strides"] == (0,)
    with pytest.raises(ArrayError, match="strides"):
        interop_demo.scale_(zero, 2.0)
    assert np.array_equal(base, np.arange(4.0))


def test_a_big_broadcast_array_is_described_and_no_more():
    array = np.broadcast_to(np.float32(1), (2**40, 2**10))
    facts = interop_demo.describe(array)
    assert (facts["shape"], facts["strides"], facts["nbytes"]) == ((2**40, 2**10), (0, 0), 2**52)
    assert np.from_dlpack(interop_demo.asarray(array)).shape == array.shape


@pytest.mark.parametrize("offset", range(8))
def test_any_alignment(offset):
    """R76, bug 87: a view needs no alignment, and neither do kernels that read element by element."""
    array = np.frombuffer(bytearray(8 * 4 + 8), "|u1")[offset : offset + 32].view("<f8")
    array[...] = [1, 2, 3, 4]
    assert interop_demo.describe(array)["data"] == address(array)
    assert interop_demo.checksum(array) == 10
    interop_demo.scale_(array, 2.0)
    assert array.tolist() == [2, 4, 6, 8]
    assert np.array_equal(np.from_dlpack(interop_demo.asarray(array)), array)


def test_the_source_may_go():
    """Bugs 41, 42, 45: the import keeps a temporary array alive."""
    array = interop_demo.asarray(np.arange(1000.0))
    others = [np.full(1000, 7.0) for _ in range(100)]
    assert interop_demo.checksum(array) == 499500
    view = np.from_dlpack(array)[10:20]
    del array
    assert view.sum() == sum(range(10, 20))
    del others


@needs_proc
@pytest.mark.parametrize("trip", ["there", "back", "both", "unused", "refused", "sliced"])
def test_ten_thousand_trips_leave_nothing(trip):
    """Bugs 21, 28, 32, 61: no export, allocation or memory leaks."""
    outside = np.ones((64, 64), "<f4")
    inside = Array.full((64, 64), 1.0)
    trips = {
        "there": lambda: interop_demo.describe(outside),
        "back": lambda: np.from_dlpack(inside),
        "both": lambda: np.from_dlpack(interop_demo.asarray(outside)),
        "unused": lambda: (inside.__dlpack__(), inside.__dlpack__(max_version=(1, 0), copy=True)),
        "refused": lambda: refuse(inside),
        "sliced": lambda: inside[1:, ::2].__dlpack__(max_version=(1, 0)),
    }
    go = trips[trip]
    for _ in range(1000):
        go()
    before = counters(), resident()
    for _ in range(10_000):
        go()
    assert counters() == before[0]
    assert resident() - before[1] < 2 << 20


def refuse(array):
    try:
        array.__dlpack__(dl_device=(2, 0))
    except BufferError:
        return
    raise AssertionError("not refused")


def counters():
    return interop_demo.live_exports(), interop_demo.live_allocations(), interop_demo.pending_releases()
