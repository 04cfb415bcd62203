"""Our objects used as arrays: indexed, compared, computed with, copied, pickled, passed to libraries."""

import copy
import gc
import operator
import pickle
import weakref

import interop_demo
import numpy as np
import pytest
from capsules import Tensor

Array = interop_demo.Array


def neutral(shape=(2, 2, 3)):
    """An object of the class that functions return, with numbers from 0 on; and NumPy's array of the same memory."""
    made = interop_demo.edges(Array.full(shape, 0.0))
    twin = np.from_dlpack(made)
    twin[...] = np.arange(twin.size).reshape(shape)
    return made, twin


def own(shape=(2, 2, 3)):
    made = Array.full(shape, 0.0)
    twin = np.from_dlpack(made)
    twin[...] = np.arange(twin.size).reshape(shape)
    return made, twin


MAKERS = pytest.mark.parametrize("make", [neutral, own])


def on_device(shape=(2, 3)):
    return interop_demo.asarray(Tensor(shape=shape, device=(2, 0)).capsule())


# Views

KEYS = [0, -1, slice(1, None), slice(None, None, -1), (0, 1), (..., 0), (slice(None), 0, slice(None, None, -2)), (0, ..., 2)]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_views(key):
    array, twin = neutral()
    view, theirs = array[key], twin[key]
    assert (view.shape, view.strides) == (theirs.shape, theirs.strides)
    assert np.asarray(view).tolist() == theirs.tolist()
    assert np.shares_memory(np.asarray(view), twin)


def test_views_of_views():
    """A view keeps only the first object alive: a chain of views would end in a stack overflow."""
    array, twin = neutral((3, 4, 3))
    assert np.array_equal(array[1:][:, ::-1][0].T[2], twin[1:][:, ::-1][0].T[2])
    row = array.reshape(-1)
    whole = weakref.ref(array)
    for _ in range(100_000):
        row = row[::-1]
    assert row.tolist() == twin.ravel().tolist()
    del array
    assert whole() is not None
    del row, twin
    gc.collect()
    assert whole() is None


def test_elements_are_scalars_of_numpy():
    array, twin = neutral()
    assert type(array[0, 1, 2]) is np.float32 and array[0, 1, 2] == twin[0, 1, 2]
    assert [type(value) for value in array[0, 0]] == [np.float32] * 3
    assert list(array[0, 0]) == twin[0, 0].tolist()
    # The array API returns arrays here. So do we if NumPy has no such element type, and on a device.
    assert array[0, 1, 2, ...].shape == () and on_device()[0, 0].shape == ()


def test_rows():
    array, twin = neutral()
    for rows, theirs in [(array, twin), (reversed(array), reversed(twin))]:
        for row, their in zip(rows, theirs, strict=True):
            assert type(row) is type(array) and np.array_equal(row, their) and np.shares_memory(np.asarray(row), twin)
    with pytest.raises(TypeError, match="iteration over an array without axes"):
        iter(array[0, 0, 0, ...])


@pytest.mark.parametrize("key", [[1, 0], np.array([0, 1, 1]), np.array([True, False]), ([0, 1], [1, 0]), True], ids=repr)
def test_lists_and_masks_copy(key):
    array, twin = neutral()
    assert np.array_equal(array[key], twin[key])
    # `Array` has its own `__getitem__`; this is the class that functions return.
    with pytest.raises(TypeError, match=r"index.*CUDA \(2\).*integers, slices"):
        on_device().T[key]


@pytest.mark.parametrize("key", [2, -3, (0, 0, 0, 0), (..., ...), "x", 1.0, 10**30], ids=repr)
def test_errors_of_keys_are_those_of_numpy(key):
    array, twin = neutral()
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        twin[key]
    with pytest.raises(theirs.type):
        array[key]


def test_transposed_and_reshaped():
    array, twin = neutral()
    for view, theirs in [
        (array.T, twin.T),
        (array.transpose(), twin.transpose()),
        (array.transpose(1, 0, 2), twin.transpose(1, 0, 2)),
        (array.transpose((-1, 0, 1)), twin.transpose((-1, 0, 1))),
        (array.reshape(3, 4), twin.reshape(3, 4)),
        (array.reshape((2, -1)), twin.reshape((2, -1))),
        (array.reshape(-1), twin.reshape(-1)),
        (array.T.reshape(12), twin.T.reshape(12)),
        (array.reshape(12, order="F"), twin.reshape(12, order="F")),
    ]:
        assert (view.shape, view.strides) == (theirs.shape, theirs.strides)
        assert np.array_equal(view, theirs)
    assert on_device().T.shape == (3, 2) and on_device().reshape(-1, 1).shape == (6, 1)
    for wrong in (lambda: array.transpose(0, 1), lambda: array.transpose(0, 0, 1), lambda: array.reshape(5), lambda: array.reshape(-1, -1)):
        with pytest.raises(ValueError):  # noqa: PT011
            wrong()
    assert Array.full((0, 3), 0).reshape(3, 0).shape == (3, 0)


@MAKERS
def test_elements_are_set(make):
    array, twin = make()
    array[0, :, 1] = [7, 8]
    array[np.asarray(array) > 8] = -1
    assert twin[0, :, 1].tolist() == [7, 8] and twin.max() == 8
    with pytest.raises(ValueError, match="read-only"):
        Array.full((2,), 0, readonly=True)[0] = 1


# Values

OPERATORS = "eq ne lt le gt ge add sub mul truediv floordiv mod pow matmul".split()


@MAKERS
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(make, name):
    function = getattr(operator, name)
    array, twin = (view[0] for view in make((1, 3, 3)))
    twin += 1
    other = np.arange(9.0).reshape(3, 3) + 1
    for ours, theirs in [
        (function(array, other), function(twin, other)),
        (function(other, array), function(other, twin)),
        (function(array, array), function(twin, twin)),
    ]:
        assert type(ours) is np.ndarray
        np.testing.assert_array_equal(ours, theirs)


@MAKERS
def test_equality_is_of_elements(make):
    """Never of objects, which would silently compare as different."""
    array, twin = make()
    same = copy.copy(array)
    assert (array == same).all() and not (array != same).any()
    assert np.array_equal(array == 3.0, twin == 3.0)
    assert not np.any(array == None)  # noqa: E711
    with pytest.raises(ValueError, match="broadcast"):
        array == Array.full((5,), 0)  # noqa: B015
    with pytest.raises(ValueError, match="ambiguous"):
        bool(array == same)
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)
    assert 3.0 in array and -1.0 not in array


@MAKERS
def test_in_place(make):
    array, twin = make()
    same = array
    array += 1
    array *= 2
    assert array is same and twin[0, 0].tolist() == [2, 4, 6]
    assert np.add(array, 1, out=array) is array and twin[0, 0].tolist() == [3, 5, 7]
    fixed = Array.full((2,), 0, readonly=True)
    with pytest.raises(ValueError, match="read-only"):
        fixed += 1


@MAKERS
def test_functions_and_methods_of_numpy(make):
    array, twin = make()
    assert np.array_equal(np.sqrt(array), np.sqrt(twin)) and np.array_equal(-array, -twin)
    assert np.add.reduce(array, axis=None) == twin.sum()
    assert (array.sum(), array.mean(axis=0).tolist(), array.max()) == (twin.sum(), twin.mean(axis=0).tolist(), twin.max())
    assert array.tolist() == twin.tolist() and array[:1, :1, :1].item() == 0 and array.tobytes() == twin.tobytes()
    assert array.astype("i4").dtype == np.int32 and array.itemsize == 4
    assert np.concatenate([array, twin]).shape == (4, 2, 3)
    assert f"{Array.full((), 2.5):.3f}" == "2.500"


def test_what_has_a_class_of_its_own_computes_in_its_own():
    jnp = pytest.importorskip("jax.numpy")
    array, twin = neutral()
    for sum_ in (array + jnp.ones(3), jnp.ones(3) + array):
        assert isinstance(sum_, jnp.ndarray) and np.array_equal(sum_, twin + 1)


COMPUTED = {
    "equal": lambda array: array == array,
    "add": lambda array: array + 1,
    "added": lambda array: 1 + array,
    "in-place": lambda array: operator.iadd(array, 1),
    "in": lambda array: 1 in array,
    "function": np.sqrt,
    "method": lambda array: array.sum(),
    "set": lambda array: operator.setitem(array, 0, 1),
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
def test_elsewhere_it_is_refused(compute):
    """The error says where the array is, and what to do."""
    with pytest.raises(interop_demo.ArrayError, match=r"found CUDA \(2\).*allowed: memory that the host can reach"):
        compute(on_device())


# Copies


@MAKERS
@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy])
def test_copies(make, function):
    array, twin = make()
    before = interop_demo.live_allocations()
    copied = function(array)
    assert np.array_equal(copied, twin) and not np.shares_memory(np.asarray(copied), twin)
    assert np.asarray(copied).flags.writeable and type(copied) is type(neutral()[0])
    assert interop_demo.live_allocations() > before
    del copied
    assert interop_demo.live_allocations() == before
    assert np.asarray(function(Array.full((2,), 1, readonly=True))).flags.writeable
    twice = copy.deepcopy([array, array])
    assert twice[0] is twice[1] and twice[0] is not array


@MAKERS
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_of_numpy(make, protocol):
    """Another process cannot use this process's memory, so the elements are sent."""
    array, twin = make()
    travelled = pickle.loads(pickle.dumps(array[:, ::-1], protocol))
    assert type(travelled) is np.ndarray and np.array_equal(travelled, twin[:, ::-1])


# Libraries


def test_pandas():
    pandas = pytest.importorskip("pandas")
    array, twin = neutral((1, 2, 3))
    assert pandas.Series(array[0, 0]).tolist() == twin[0, 0].tolist()
    assert pandas.DataFrame(array[0]).equals(pandas.DataFrame(twin[0]))
    assert (pandas.Series([1.0, 2, 3]) + array[0, 0]).tolist() == [1, 3, 5]


@pytest.mark.needs("PIL")
def test_pillow():
    image = pytest.importorskip("PIL.Image")
    array = Array.full((4, 3), 7, "|u1")
    for view in (array, array.T, array[::-1, ::2]):
        assert np.array_equal(np.asarray(image.fromarray(view)), np.asarray(view))
    with pytest.raises(AttributeError, match="__array_interface__.*host"):
        image.fromarray(on_device())


@pytest.mark.parametrize(("library", "function"), [("polars", lambda polars, array: polars.Series(array)), ("cv2", lambda cv2, array: cv2.blur(array, (3, 3)))])
def test_others_say_what_they_take(library, function):
    """An error, and never a wrong conversion; where a library converts through NumPy, that is accepted."""
    module = pytest.importorskip(library)
    array, _ = neutral()
    with pytest.raises(Exception, match="unsupported type|not a numpy array"):  # noqa: PT011
        function(module, array[0, 0])
    function(module, np.asarray(array[0, 0]))
