"""Exports of an `Array` in host memory: copies, read-only memory, the C struct, its life (R58 to R128)."""

import ctypes
import enum
import gc

import interop_demo
import numpy as np
import pytest
from capsules import (
    CPU, IS_COPIED, READ_ONLY, Producer, Tensor, look, name_of, numbers_at, python_function, release, release_attached,
    take,
)

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
Kind = enum.IntEnum("Kind", {"CPU": 1, "CUDA": 2})
V1 = {"max_version": (1, 0)}


@pytest.fixture
def array():
    return Array.full((2, 3), 1.5)


def edge_image(height=4, width=5):
    """A struct returned by a function: an object of another class with the same behaviour."""
    return interop_demo.edges(Array.full((height, width, 3), 1.0))


# copy (R115, R123, bug 136)

LAYOUTS = {
    "plain": lambda: Array.full((2, 3), 1.5),
    "0d": lambda: Array.full((), 1.5),
    "fortran": lambda: Array.full((4, 3), 1.5, order="F"),
    "sliced": lambda: Array.full((8, 9), 1.5)[1::2, 8:0:-3],
    "broadcast": lambda: interop_demo.asarray(np.broadcast_to(np.float32(2.5), (3, 4))),
    "read-only": lambda: Array.full((2, 3), 1.5, readonly=True),
    "bool": lambda: Array.full((5,), True, "|b1"),
    "complex": lambda: interop_demo.asarray(np.arange(6, dtype="<c16")[::2]),
    "empty": lambda: Array.full((3, 0, 2), 1.5),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", [None, (1, 0)], ids=repr)
def test_copy_true(layout, version):
    array = LAYOUTS[layout]()
    facts = interop_demo.describe(array)
    original = np.from_dlpack(array).copy()
    copied = look(capsule := array.__dlpack__(copy=True, max_version=version))
    if version:
        assert copied.flags == IS_COPIED
    inner, ndim, count = copied.tensor, len(facts["shape"]), original.size
    assert numbers_at(inner.shape, ndim) == (facts["shape"] if ndim else None)
    expected = tuple(step // original.itemsize for step in np.empty(facts["shape"], original.dtype).strides)
    assert count == 0 or numbers_at(inner.strides, ndim) == (expected if ndim else None)
    if count == 0:
        assert not inner.data
        return
    assert inner.data != facts["data"]
    content = (ctypes.c_uint8 * original.nbytes).from_address(inner.data)
    assert bytes(content) == original.tobytes()
    ctypes.memset(inner.data, 0xFF, original.nbytes)
    assert np.array_equal(np.from_dlpack(array), original), "the original changed"
    del capsule


def test_a_copy_that_a_bool_of_numpy_wishes_for():
    """NumPy's arrays accept it, and `numpy.from_dlpack` passes it on."""
    array = Array.full((2, 3), 1.0)
    copied, shared = (np.from_dlpack(array, copy=copy) for copy in (np.True_, np.False_))
    assert not np.shares_memory(copied, shared)
    assert np.shares_memory(shared, np.from_dlpack(array))


@pytest.mark.parametrize("copy", [None, False], ids=repr)
def test_no_copy(array, copy):
    struct = look(capsule := array.__dlpack__(copy=copy, **V1))
    assert struct.flags == 0
    assert struct.tensor.data == interop_demo.describe(array)["data"]
    del capsule


def test_an_array_is_no_wish(array):
    """NumPy's arrays raise a `ValueError` for it."""
    with pytest.raises(ValueError, match="ambiguous"):
        array.__dlpack__(copy=np.ones(3))


@pytest.mark.parametrize("copy", [0, 1, "True", [], 2.0], ids=repr)
def test_bad_copy(array, copy):
    with pytest.raises(TypeError, match="copy"):
        array.__dlpack__(copy=copy)


# read-only (R70 to R72, R126, bugs 131, 133)

READ_ONLY_ARRAYS = {
    "full": lambda: Array.full((2, 3), 1.5, readonly=True),
    "slice": lambda: Array.full((4, 3), 1.5, readonly=True)[1:3],
    "numpy": lambda: interop_demo.asarray(np.broadcast_to(np.float32(1.5), (2, 3))),
    "legacy": lambda: interop_demo.asarray(Tensor("legacy").capsule()),
    "flag": lambda: interop_demo.asarray(Tensor(flags=READ_ONLY).capsule()),
    "flag-twice": lambda: interop_demo.asarray(interop_demo.asarray(Tensor(flags=READ_ONLY).capsule())),
}


@pytest.mark.parametrize("make", READ_ONLY_ARRAYS.values(), ids=READ_ONLY_ARRAYS)
def test_read_only(make):
    array = make()
    assert look(capsule := array.__dlpack__(**V1)).flags == READ_ONLY
    assert interop_demo.describe(array)["readonly"] is True
    assert np.from_dlpack(array).flags.writeable is False
    for version in (None, (0, 8)):
        with pytest.raises(BufferError, match="read-only"):
            array.__dlpack__(max_version=version)
    assert look(copy := array.__dlpack__(copy=True, **V1)).flags == IS_COPIED
    assert name_of(array.__dlpack__(copy=True)) == "dltensor"
    for refused in (ArrayError, BufferError, ValueError):
        with pytest.raises(refused, match="read-only"):
            interop_demo.scale_(array, 2.0)
    del capsule, copy


# The C struct (R61, R62, R69, R75, R78, R81, R90, R93, bugs 68, 79, 80, 86)

STRUCTS = [
    ("2d", lambda: Array.full((2, 3), 0), (2, 3), (3, 1)),
    ("1d", lambda: Array.full(4, 0), (4,), (1,)),
    ("0d", lambda: Array.full((), 0), None, None),
    ("ones", lambda: Array.full((1, 1), 0), (1, 1), (1, 1)),
    ("fortran", lambda: Array.full((2, 3), 0, order="F"), (2, 3), (1, 2)),
    ("images", lambda: Array.full((1, 1, 24, 24), 0), (1, 1, 24, 24), (576, 576, 24, 1)),
    ("8d", lambda: Array.full((2,) * 8, 0), (2,) * 8, (128, 64, 32, 16, 8, 4, 2, 1)),
    ("empty", lambda: Array.full((0,), 0), (0,), (1,)),
    ("empty-3d", lambda: Array.full((2, 0, 3), 0), (2, 0, 3), (3, 3, 1)),
    ("slice", lambda: Array.full((4, 6), 0)[1:3, 2:4], (2, 2), (6, 1)),
    ("backwards", lambda: Array.full((4,), 0)[::-1], (4,), (-1,)),
    ("one-element", lambda: Array.full((4, 6), 0)[3, 5], None, None),
]


@pytest.mark.parametrize(("make", "shape", "strides"), [pytest.param(*row, id=name) for name, *row in STRUCTS])
@pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])
def test_struct(make, shape, strides, version):
    array = make()
    struct = look(capsule := array.__dlpack__(max_version=version))
    inner, ndim = struct.tensor, len(shape or ())
    assert inner.ndim == ndim
    assert (numbers_at(inner.shape, ndim), numbers_at(inner.strides, ndim)) == (shape, strides)
    assert (inner.device_type, inner.device_id) == (CPU, 0)
    assert (inner.code, inner.bits, inner.lanes) == (2, 32, 1)
    assert inner.byte_offset == 0
    assert (inner.data or 0) == interop_demo.describe(array)["data"]
    assert (inner.data is None) == (0 in (shape or ()))
    assert struct.deleter
    if version:
        assert (struct.major, struct.minor, struct.flags) == (1, 3, 0)
    del capsule


@pytest.mark.parametrize(
    ("dtype", "triple"),
    [
        ("|b1", (6, 8, 1)), ("|i1", (0, 8, 1)), ("<i2", (0, 16, 1)), ("<i4", (0, 32, 1)), ("<i8", (0, 64, 1)),
        ("|u1", (1, 8, 1)), ("<u2", (1, 16, 1)), ("<u4", (1, 32, 1)), ("<u8", (1, 64, 1)), ("<f2", (2, 16, 1)),
        ("<f4", (2, 32, 1)), ("<f8", (2, 64, 1)), ("bfloat16", (4, 16, 1)),
    ],
)
def test_types(dtype, triple):
    array = Array.full((3,), 1, dtype)
    inner = look(capsule := array.__dlpack__()).tensor
    assert (inner.code, inner.bits, inner.lanes) == triple
    assert interop_demo.describe(array)["dtype"] == dtype
    assert interop_demo.checksum(array) == 3
    del capsule


def test_memory_is_aligned():
    """Bug 88: JAX uses memory in place if it is aligned to 64 bytes; ours is aligned to 128."""
    for size in (1, 3, 1000, 0):
        assert interop_demo.describe(Array.full((size,), 0, "|u1"))["data"] % 128 == 0


def test_device(array):
    """Bug 126: built-in ints."""
    for made in (array, edge_image()):
        device = made.__dlpack_device__()
        assert device == (1, 0)
        assert type(device) is tuple
        assert [type(number) for number in device] == [int, int]


def test_no_interface_on_the_host(array):
    """R18, bugs 128, 151: `hasattr` returns false."""
    for made in (array, edge_image(), Array.full((0,), 0)):
        assert not hasattr(made, "__cuda_array_interface__")
        with pytest.raises(AttributeError, match="DLPack"):
            made.__cuda_array_interface__  # noqa: B018


# Life (R95, R107 to R109, bugs 20 to 23, 40)


def test_export_as_often_as_you_like(array):
    capsules = [array.__dlpack__(max_version=version) for version in (None, (1, 0)) * 5]
    assert interop_demo.live_exports() == 10
    assert len({look(capsule).tensor.data for capsule in capsules}) == 1
    assert len({ctypes.addressof(look(capsule)) for capsule in capsules}) == 10
    del capsules
    assert interop_demo.live_exports() == 0


@pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])
def test_a_consumer_that_clears_the_destructor(version):
    """R109: then it need not rename the capsule, and the tensor lives until the consumer releases it."""
    capsule = Array.full((2, 3), 1.5).__dlpack__(max_version=version)
    struct = look(capsule)
    python_function("PyCapsule_SetDestructor", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(capsule, None)
    del capsule
    gc.collect()
    assert interop_demo.live_exports() == 1
    assert numbers_at(struct.tensor.shape, 2) == (2, 3)
    release(struct)
    assert interop_demo.live_exports() == 0


@pytest.mark.parametrize("version", [None, (1, 0)], ids=["legacy", "versioned"])
@pytest.mark.parametrize("let_go", [release, release_attached], ids=["without-lock", "with-lock"])
def test_a_consumer_releases(version, let_go):
    before = interop_demo.live_allocations()
    array = Array.full((2, 3), 1.5)
    capsule = array.__dlpack__(max_version=version)
    struct = take(capsule)
    del capsule, array
    gc.collect()
    assert (interop_demo.live_exports(), interop_demo.live_allocations()) == (1, before + 1)
    assert numbers_at(struct.tensor.shape, 2) == (2, 3)
    let_go(struct)
    assert interop_demo.live_exports() == 0
    assert interop_demo.live_allocations() == before  # which runs deferred releases
    assert interop_demo.pending_releases() == 0


def test_a_pending_exception_survives_the_capsule(array):
    """R108, bug 23: the capsule on the stack is destroyed while the exception propagates."""

    def fails():
        raise KeyError("on its way")

    for version in (None, (1, 0)):
        with pytest.raises(KeyError, match="on its way"):
            [array.__dlpack__(max_version=version), fails()]
        assert interop_demo.live_exports() == 0


def test_imports_of_exports(array):
    """An imported export has the original description, through each way to import it."""
    facts = interop_demo.describe(array)
    assert facts["protocol"] in ("exchange", "dlpack_versioned")
    for source, protocol in [(array.__dlpack__(), "dlpack"), (array.__dlpack__(**V1), "dlpack_versioned")]:
        assert interop_demo.describe(source) == {**facts, "protocol": protocol, "readonly": protocol == "dlpack"}
    tensor = Tensor()
    assert interop_demo.describe(interop_demo.asarray(Producer(tensor)))["data"] == tensor.memory
