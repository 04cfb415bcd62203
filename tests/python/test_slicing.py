"""`Array[...]` compared with NumPy: shapes, strides, addresses, values and error classes (bugs 63, 77, 84, 86)."""

import copy
import pickle
import random

import interop_demo
import numpy as np
import pytest
from capsules import PADDED, Tensor

Array = interop_demo.Array
SHAPES = [(), (1,), (7,), (0,), (3, 4), (4, 0, 3), (1, 5, 1), (2, 3, 4, 5), (2,) * 7]


def numbered(shape, dtype="<f4"):
    """Returns an array with distinct elements, and the NumPy array of the same memory."""
    array = Array.full(shape, 0, dtype)
    twin = np.from_dlpack(array)
    twin[...] = np.arange(twin.size).reshape(shape)
    return array, twin


def view_of(twin, key):
    """Returns `twin[key]` as a view, also where NumPy returns a number: with an ellipsis at the end."""
    key = key if isinstance(key, tuple) else (key,)
    return twin[key if any(item is ... for item in key) else (*key, ...)]


def assert_same(array, twin):
    """Checks that both are the same view of the same memory."""
    facts = interop_demo.describe(array)
    assert facts["shape"] == twin.shape
    assert facts["nbytes"] == twin.nbytes
    if twin.size == 0:
        assert facts["data"] == 0
        return
    assert facts["data"] == twin.__array_interface__["data"][0]
    for axis, extent in enumerate(twin.shape):
        assert extent == 1 or facts["strides"][axis] * twin.itemsize == twin.strides[axis]
    assert np.array_equal(np.from_dlpack(array), twin)
    assert interop_demo.checksum(array) == float(twin.sum(dtype="f8"))


def random_number(generator, extent):
    return generator.choice(
        [None, generator.randint(-2 * extent - 2, 2 * extent + 2), 0, extent, -extent, 10**30, -(10**30)]
    )


def random_key(generator, shape):
    """A random key of NumPy's basic indexing."""
    items = []
    for extent in shape[: generator.randint(0, len(shape))]:
        if extent and generator.random() < 0.3:
            number = generator.randrange(-extent, extent)
            items.append(generator.choice([number, np.int64(number), np.int8(number)]))
        else:
            step = generator.choice([None, 1, 2, 3, -1, -2, -5, 10**30, -(10**30)])
            items.append(slice(random_number(generator, extent), random_number(generator, extent), step))
    if generator.random() < 0.3:
        # Items after an ellipsis count from the last axis; only full slices are valid at any position.
        items = [...] + [slice(None)] * generator.randint(0, len(shape)) if generator.random() < 0.3 else [*items, ...]
    for _ in range(generator.choice([0, 0, 1, 2])):
        items.insert(generator.randint(0, len(items)), None)
    return items[0] if len(items) == 1 and generator.random() < 0.5 else tuple(items)


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("dtype", ["<f4", "|u1", "<i8"])
def test_random_slices(shape, dtype):
    generator = random.Random(f"{shape}{dtype}")
    array, twin = numbered(shape, dtype)
    for _ in range(60):
        key = random_key(generator, shape)
        assert_same(array[key], view_of(twin, key))


@pytest.mark.parametrize("seed", range(20))
def test_slices_of_slices(seed):
    generator = random.Random(seed)
    array, twin = numbered((6, 5, 4, 3))
    for _ in range(6):
        key = random_key(generator, twin.shape)
        array, twin = array[key], view_of(twin, key)
        assert_same(array, twin)


KEYS = [
    (),
    ...,
    slice(None),
    (...,),
    (slice(None), ...),
    (..., slice(None)),
    (0, ...),
    (..., 0),
    (0, ..., 0),
    (..., 0, 0, 0),
    (slice(None, None, -1),) * 3,
    (slice(0, 0), 1),
    (slice(5, 2), ...),
    (-1, -1, -1),
    (slice(-1, None, -1), 0),
    (slice(0, 1, -1),),
    (slice(2, 0, -1),),
    (slice(None, None, 100), 1),
    (slice(10**30, None, -1),),
    (slice(-(10**30), 10**30),),
    (slice(True, None),),
    (slice(np.int64(1), np.uint8(3), np.int16(1)),),
    (..., slice(1, 2), 3),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_keys(key):
    array, twin = numbered((3, 4, 5))
    assert_same(array[key], view_of(twin, key))


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Raising:
    def __index__(self):
        raise RuntimeError("from the index")


def test_objects_with_an_index():
    array, twin = numbered((3, 4))
    assert_same(array[Index(1)], twin[1])
    assert_same(array[Index(0) : Index(2), Index(-1)], twin[0:2, -1])
    with pytest.raises(RuntimeError, match="from the index"):
        array[Raising()]
    with pytest.raises(RuntimeError, match="from the index"):
        array[:: Raising()]


BAD_KEYS = [
    3, -4, (0, 4), (0, -5), (0, 0, 0), (slice(None),) * 3, (..., ...), (0, ..., ...), 10**30, -(10**30), 1.0, "x", b"x",
    pytest.param(object(), id="object"), {}, (0, 1.5), (0, "x"), slice(None, None, 0), (0, slice(0, 1, 0)), slice(1.0),
    slice("a", "b"), slice(None, None, 1.5), (0, slice(None, None, "x")),
]


@pytest.mark.parametrize("key", BAD_KEYS, ids=repr)
def test_errors_are_of_the_classes_of_numpy(key):
    array, twin = numbered((3, 4))
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        twin[key]
    with pytest.raises(Exception) as ours:  # noqa: PT011
        array[key]
    assert ours.type is theirs.type


@pytest.mark.parametrize(
    "key", [True, False, [0], [True, False, True], np.array([0, 1]), np.array([True] * 3), (None, True)], ids=repr
)
def test_what_numpy_calls_advanced_is_refused(key):
    """Such keys copy; treating them as integers would be wrong."""
    array, _ = numbered((3, 4))
    with pytest.raises((TypeError, IndexError)):
        array[key]


@pytest.mark.parametrize("mask", [np.array([True, False]), [True, False], np.array([1, 0]), Array.full((2,), True, "|b1")], ids=["mask", "list", "indices", "ours"])
def test_a_mask_is_told_to_numpy(mask):
    array = Array.full((2, 3), 1.0)
    for key in (mask, (mask, 0), (..., mask)):
        with pytest.raises(IndexError, match=r"^indices are integers, slices, .*, not \w+; NumPy selects by a mask .*numpy.asarray\(x\)\[index\]"):
            array[key]


def test_new_axes():
    array, twin = numbered((3, 4))
    for key in (None, (None,), (None, 0), (0, None), (..., None), (None, ..., None), (slice(2), None, -1), (0, 0, None)):
        assert_same(array[key], view_of(twin, key))
    # A consumer that infers the order from these strides finds that of a contiguous array.
    assert array[None].strides == (48, 16, 4)
    assert array[:, None, :, None].strides == (16, 16, 4, 4)
    with pytest.raises(IndexError, match="3 indices for 2 axes"):
        array[None, 0, 0, 0]
    with pytest.raises(interop_demo.ArrayError, match="65 axes"):
        array[(None,) * 63]


def test_two_ellipses():
    array, _ = numbered((3, 4))
    with pytest.raises(IndexError, match="found 2"):
        array[..., ...]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, -(2**64)])
def test_numbers_beyond_all_indices(number):
    """An IndexError, as for 10**30 (NumPy raises an OverflowError for some of them)."""
    array, _ = numbered((3, 4))
    for key in (number, (0, number), np.uint64(number) if 0 <= number < 2**64 else number):
        with pytest.raises(IndexError):
            array[key]


@pytest.mark.parametrize("shape", [(0,), (2, 0)], ids=repr)
def test_no_element_to_take(shape):
    array, _ = numbered(shape)
    with pytest.raises(IndexError):
        array[(0,) * len(shape)]
    with pytest.raises(IndexError):
        Array.full((), 0.0)[0]


def test_views_are_writable_and_share_the_memory():
    array, twin = numbered((4, 6))
    interop_demo.scale_(array[1:3, ::-2], 10.0)
    expected = np.arange(24.0).reshape(4, 6)
    expected[1:3, ::-2] *= 10
    assert np.array_equal(twin, expected)
    np.from_dlpack(array[3])[...] = -1
    assert (twin[3] == -1).all()


def test_views_keep_what_the_array_is():
    """Read-only stays read-only; the memory lives as long as the last view."""
    assert interop_demo.describe(Array.full((3, 3), 0, readonly=True)[1][1:])["readonly"] is True
    before = interop_demo.live_allocations()
    view = Array.full((100,), 7.0)[10:20][::3]
    assert interop_demo.live_allocations() == before + 1
    assert interop_demo.checksum(view) == 28
    del view
    assert interop_demo.live_allocations() == before


def test_views_of_imports():
    """A broadcast NumPy array, and an array whose first element is not at the lowest address."""
    base = np.arange(12.0).reshape(3, 4)
    for source in (base[::-1, ::-1], base.T, base[:, 1:2], np.broadcast_to(base[0], (5, 4)), base[2:0:-1]):
        array = interop_demo.asarray(source)
        for key in (0, -1, slice(None, None, -1), (..., 0), (slice(1, None), slice(None, None, 2))):
            found = array[key]
            assert np.array_equal(np.from_dlpack(found), source[key])
            expected = view_of(source, key)
            assert interop_demo.describe(found)["data"] == expected.__array_interface__["data"][0]
            assert np.from_dlpack(found).flags.writeable == expected.flags.writeable


def test_packed_elements():
    """Two 4-bit elements share a byte: a view may start at the first of them, not at the second."""
    tensor = Tensor(dtype=(17, 4, 1), shape=(4, 4), strides=(4, 1))
    array = interop_demo.asarray(tensor.capsule())
    for key, byte in [
        (slice(2, None), 4), (1, 2), ((2, slice(2, None)), 5), ((3, 2), 7), ((slice(None, None, -1), 0), 6)
    ]:
        assert interop_demo.describe(array[key])["data"] == tensor.memory + byte
    for key in [(0, 1), (slice(None), slice(1, None)), (3, slice(None, None, -1))]:
        with pytest.raises(ValueError, match="byte"):
            array[key]
    padded = Tensor(dtype=(17, 4, 1), shape=(4, 4), strides=(4, 1), flags=PADDED)
    assert interop_demo.describe(interop_demo.asarray(padded.capsule())[1, 1:])["data"] == padded.memory + 5


def test_one_axis_more_than_a_view_can_drop():
    array = Array.full((1,) * 64, 3.0)
    assert interop_demo.describe(array[(0,) * 64])["shape"] == ()
    with pytest.raises(IndexError):
        array[(0,) * 65]
    assert interop_demo.describe(array[(slice(None),) * 63 + (0,)])["shape"] == (1,) * 63


def test_extreme_strides_of_idle_axes():
    """Strides without a meaning must not overflow on the way."""
    highest, lowest = 2**63 - 1, -(2**63)
    for strides in [(highest, 1), (lowest, 1), (highest, lowest)]:
        array = interop_demo.asarray(Tensor(shape=(0, 5), strides=strides).capsule())
        for key in [(slice(None), slice(None, None, 2)), (slice(None), 3), (slice(None, None, -1), slice(4, 1, -1))]:
            assert interop_demo.describe(array[key])["data"] == 0
        array = interop_demo.asarray(Tensor(shape=(1, 1), strides=strides).capsule())
        assert interop_demo.describe(array[0, ::-3])["shape"] == (1,)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_view_and_a_returned_array_can_be_copied(copied):
    """As those of NumPy: new memory with the same elements, compact and row after row."""
    array = interop_demo._exported(Array.full((3, 4), 0, "<f4"))
    np.from_dlpack(array)[...] = np.arange(12).reshape(3, 4)
    for view in (array[::-1, 1:3], array[1], array[...]):
        new = copied(view)
        assert type(new) is type(view)
        elements, original = np.from_dlpack(new), np.asarray(view)
        assert elements.tolist() == original.tolist() and elements.flags.c_contiguous and elements.flags.writeable
        elements[...] = -1
        assert original.min() >= 0


def test_pickling_says_what_to_pickle():
    array = interop_demo._exported(Array.full((3,), 2.0, "<f4"))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=r"cannot be pickled; pickle an array of a library, such as `numpy.asarray\(x\)`"):
            pickle.dumps(array[1:], protocol)
    assert pickle.loads(pickle.dumps(np.asarray(array[1:]))).tolist() == [2, 2]
