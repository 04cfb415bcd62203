"""`Array.full`, `scale_`, `checksum`, `blur_` and `edges`: what they compute, and what they refuse."""

import inspect
import threading

import interop_demo
import numpy as np
import pytest
from capsules import Tensor
from scripts import run

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError
INTEGERS = ["|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8"]
FLOATS = ["<f2", "<f4", "<f8"]


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


# Array.full


def test_the_signature_of_full():
    parameters = inspect.signature(Array.full).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "shape": inspect.Parameter.empty, "value": inspect.Parameter.empty, "dtype": "<f4",
        "device": "cpu", "ordinal": 0, "order": "C", "readonly": False,
    }
    assert [name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY] == [
        "device", "ordinal", "order", "readonly",
    ]
    with pytest.raises(TypeError):
        Array.full((2,), 0, "<f4", "cpu")
    with pytest.raises(TypeError):
        Array()


@pytest.mark.parametrize(("shape", "expected"), [
    (3, (3,)), (0, (0,)), ((2, 3), (2, 3)), ([2, 3], (2, 3)), ((), ()), ([], ()), (np.int64(3), (3,)),
    ((np.int8(2), np.uint64(3)), (2, 3)), (Index(3), (3,)), ((Index(2), 3), (2, 3)), ((0, 2**62), (0, 2**62)),
], ids=repr)
def test_shapes(shape, expected):
    assert interop_demo.describe(Array.full(shape, 0))["shape"] == expected


@pytest.mark.parametrize(("shape", "error"), [
    (-1, ValueError), ((2, -1), ValueError), ((0, -1), ValueError), (2.0, TypeError), ((2.0,), TypeError),
    (True, TypeError),
    ((2, True), TypeError), (None, TypeError), ("23", TypeError), (b"23", TypeError), ({2, 3}, TypeError),
    ((2, None), TypeError),
    (((2,), 3), TypeError), (object(), TypeError), (2**63, ValueError), (2**70, ValueError),
    (2**200, (ValueError, OverflowError)),
    ((2**32, 2**32), ValueError), ((1,) * 65, ValueError),
], ids=repr)
def test_bad_shapes(shape, error):
    with pytest.raises(error) as caught:
        Array.full(shape, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("keywords", "error", "place"), [
    ({"dtype": ">f4"}, ArrayError, "dtype|typestr"), ({"dtype": "f4"}, ArrayError, "dtype|typestr"),
    ({"dtype": ""}, ArrayError, "dtype|typestr"),
    ({"dtype": "<V2"}, ArrayError, "dtype|typestr"), ({"dtype": "|V8"}, ArrayError, "dtype"),
    ({"dtype": None}, TypeError, "dtype"),
    ({"dtype": 4}, TypeError, "dtype"), ({"order": "A"}, ArrayError, "order"), ({"order": "c"}, ArrayError, "order"),
    ({"order": ""}, ArrayError, "order"), ({"order": None}, TypeError, "order"),
    ({"device": "tpu"}, ArrayError, "device"),
    ({"device": ""}, ArrayError, "device"), ({"device": None}, TypeError, "device"),
    ({"ordinal": "0"}, TypeError, "ordinal"),
    ({"ordinal": -1}, ArrayError, "ordinal"), ({"readonly": "yes"}, TypeError, "readonly"),
    ({"writable": True}, TypeError, "writable"),
], ids=repr)
def test_bad_keywords(keywords, error, place):
    with pytest.raises(error, match=place):
        Array.full((2,), 0, **keywords)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int8", "uint64", "bool", "bfloat16"])
def test_names_of_types(name):
    array = Array.full((2,), 1, name)
    assert interop_demo.describe(array)["dtype"] == (name if name == "bfloat16" else np.dtype(name).str)
    assert interop_demo.checksum(array) == 2


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_whole_range_of_integers(dtype):
    limits = np.iinfo(dtype)
    for value in (limits.min, limits.max):
        assert np.from_dlpack(Array.full((2,), value, dtype)).tolist() == [int(value)] * 2
    for value in (int(limits.min) - 1, int(limits.max) + 1, 2**100):
        with pytest.raises((ArrayError, OverflowError), match="value|large|big|range"):
            Array.full((2,), value, dtype)


@pytest.mark.parametrize("value", ["1", None, 1 + 2j, [1], b"1", object()], ids=repr)
def test_bad_values(value):
    with pytest.raises(TypeError, match="value"):
        Array.full((2,), value)


def test_values_of_numpy():
    for value in (np.float32(1.5), np.float64(1.5), np.array(1.5)):
        assert interop_demo.checksum(Array.full((2,), value)) == 3
    assert interop_demo.checksum(Array.full((2,), np.int64(2), "<i8")) == 4
    assert np.isnan(interop_demo.checksum(Array.full((1,), float("nan"))))
    assert interop_demo.checksum(Array.full((1,), float("-inf"), "<f2")) == float("-inf")


@pytest.mark.parametrize("program", [
    "interop_demo.Array.full((2**45,), 0.0)",
    "interop_demo.Array.full((2**60,), 0, '|u1')",
    "interop_demo.asarray(np.broadcast_to(np.float32(1), (2**46,))).__dlpack__(copy=True)",
    "interop_demo.edges(interop_demo.asarray(Tensor(shape=(2**20, 2**22, 3), strides=None).capsule()))",
])
def test_memory_that_there_is_not(program):
    """An exception, and not the end of the process."""
    run(
        f"""
        import numpy as np, interop_demo
        from capsules import Tensor
        try:
            {program}
        except (MemoryError, BufferError) as error:
            print(error)
        else:
            raise SystemExit("done")
        """,
    )


# scale_


@pytest.mark.parametrize("dtype", FLOATS)
def test_scale_floats(dtype):
    array = np.arange(24).astype(dtype).reshape(4, 6)
    assert interop_demo.scale_(array, 2.5) is None
    assert np.array_equal(array, (np.arange(24) * 2.5).astype(dtype).reshape(4, 6))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_scale_integers(dtype):
    """Rounded towards zero and kept within the range of the type."""
    limits = np.iinfo(dtype)
    array = np.array([0, 1, 2, 3, 7, limits.min, limits.max], dtype)
    interop_demo.scale_(array, 2.5)
    assert array[:5].tolist() == [0, 2, 5, 7, 17]
    assert array[5:].tolist() == [limits.min, limits.max]
    interop_demo.scale_(array, float("nan"))
    assert not array.any()


@pytest.mark.parametrize("view", [
    lambda a: a[::2], lambda a: a[::-1, ::-2], lambda a: a.T, lambda a: a[1:3, 2:4], lambda a: a[2, 3, ...],
    lambda a: a[:0],
    lambda a: a[:, :1], lambda a: a.reshape(2, 2, 2, 3)[:, 1],
])
def test_scale_touches_the_view_and_nothing_else(view):
    array = np.ones((4, 6))
    expected = array.copy()
    view(expected)[...] *= 3
    interop_demo.scale_(view(array), 3)
    assert np.array_equal(array, expected)


@pytest.mark.parametrize("make", [
    lambda: np.ones(3, "<c8"), lambda: np.ones(3, "?"), lambda: Tensor(dtype=(17, 4, 1)).capsule(),
    lambda: Tensor(dtype=(10, 8, 1)).capsule(),
    lambda: Tensor(dtype=(3, 8, 8)).capsule(), lambda: Tensor(dtype=(2, 32, 4)).capsule(),
    lambda: Tensor(dtype=(99, 32, 1)).capsule(),
    lambda: Tensor("legacy").capsule(), lambda: Tensor(flags=1).capsule(), lambda: Tensor(strides=(0, 1)).capsule(),
    lambda: Tensor(strides=(1, 1)).capsule(), lambda: Tensor(strides=(2, 1)).capsule(),
    lambda: Tensor(device=(2, 0)).capsule(),
],
ids=["complex", "bool", "4-bits", "float8", "opaque", "lanes", "unknown", "legacy", "read-only", "zero-stride",
    "overlapping",
        "overlapping-rows", "cuda"])
def test_scale_refuses(make):
    with pytest.raises(ArrayError):
        interop_demo.scale_(make(), 2.0)


@pytest.mark.parametrize("factor", [None, "2", 1j, [2.0], (), b"2"], ids=repr)
def test_bad_factors(factor):
    array = np.ones(3)
    with pytest.raises(TypeError):
        interop_demo.scale_(array, factor)
    assert array.sum() == 3


def test_big_integers_scaled_by_one_stay():
    """What is not changed must not change: 2**53 + 1 has no exact double."""
    array = np.array([2**53 + 1, -(2**62) - 1, 2**63 - 1], "<i8")
    expected = array.tolist()
    interop_demo.scale_(array, 1)
    assert array.tolist() == expected


# checksum


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "|b1"])
def test_checksum(dtype):
    array = (np.arange(24) % 7).astype(dtype).reshape(4, 6)
    for view in (array, array[::2], array[::-1, 1:4], array.T, array[1, 1, ...], array[:0],
        np.broadcast_to(array[0], (9, 6))):
        found = interop_demo.checksum(view)
        assert type(found) is float
        assert found == float(view.sum(dtype="f8"))


@pytest.mark.parametrize("make", [
    lambda: np.ones(3, "<c16"), lambda: Tensor(dtype=(17, 4, 1)).capsule(), lambda: Tensor(dtype=(3, 8, 4)).capsule(),
    lambda: Tensor(dtype=(2, 32, 2)).capsule(), lambda: Tensor(dtype=(18, 32, 1)).capsule(),
    lambda: Tensor(device=(2, 0)).capsule(),
], ids=["complex", "4-bits", "opaque", "lanes", "unknown", "cuda"])
def test_checksum_refuses(make):
    with pytest.raises(ArrayError, match="dtype|device"):
        interop_demo.checksum(make())


def test_bytes_that_are_no_bool():
    """Bug 99: a byte of 2 in a bool array is refused, and the same bytes as uint8 are read."""
    bytes_ = np.array([0, 1, 2], "|u1")
    assert interop_demo.checksum(bytes_) == 3
    with pytest.raises(ArrayError, match="byte 2"):
        interop_demo.checksum(bytes_.view("?"))
    assert interop_demo.describe(bytes_.view("?"))["dtype"] == "|b1"


# blur_ and edges


def picture(height, width):
    return np.random.default_rng(height * 100 + width).random((height, width, 3), dtype="f4")


def blurred(image, radius):
    """The mean over the square around each pixel, cut at the borders."""
    height, width, _ = image.shape
    out = np.empty_like(image)
    for y in range(height):
        for x in range(width):
            window = image[max(0, y - radius) : y + radius + 1, max(0, x - radius) : x + radius + 1]
            out[y, x] = window.mean(axis=(0, 1), dtype="f8")
    return out


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 7), (16, 9)], ids=repr)
@pytest.mark.parametrize("radius", [0, 1, 2, 5, 100, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])
def test_blur(shape, radius):
    image = picture(*shape)
    expected = blurred(image, min(radius, 1000))
    assert interop_demo.blur_(image, radius) is None
    assert np.allclose(image, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 0, 3)], ids=repr)
def test_empty_images(shape):
    interop_demo.blur_(np.zeros(shape, "f4"), 3)
    assert interop_demo.describe(interop_demo.edges(np.zeros(shape, "f4")))["shape"] == shape


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (16, 9)], ids=repr)
def test_edges(shape):
    image = picture(*shape)
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="edge")
    expected = np.hypot(padded[1:-1, 2:] - padded[1:-1, :-2], padded[2:, 1:-1] - padded[:-2, 1:-1])
    found = interop_demo.edges(image)
    seen = np.from_dlpack(found)
    assert np.allclose(seen, expected, atol=1e-6)
    assert seen.flags.writeable
    assert not np.shares_memory(seen, image)
    seen[...] = 2
    assert interop_demo.checksum(found) == 2 * image.size
    assert type(found).__name__ == "ExportedArray"


BAD_IMAGES = [
    (lambda: np.ones((4, 5, 4), "f4"), r"shape\[2\]"), (lambda: np.ones((4, 5), "f4"), "shape"),
    (lambda: np.ones((1, 4, 5, 3), "f4"), "shape"),
    (lambda: np.ones((4, 5, 3), "f8"), "dtype"), (lambda: np.ones((4, 5, 3), "|u1"), "dtype"),
    (lambda: np.ones((4, 5, 6), "f4")[:, :, ::2], "strides"),
    (lambda: np.ones((4, 5, 3), "f4")[::-1], "strides"), (lambda: np.ones((3, 5, 4), "f4").T, "strides"),
    (lambda: np.broadcast_to(np.float32(1), (4, 5, 3)), "strides|readonly"),
    (lambda: Tensor(shape=(1, 2, 3), strides=None, device=(2, 0)).capsule(), ""),
]


@pytest.mark.parametrize(("make", "place"), BAD_IMAGES)
def test_bad_images(make, place):
    """What cannot be read as the struct is refused, with the axis or the word."""
    for call in (lambda image: interop_demo.blur_(image, 1), interop_demo.edges):
        with pytest.raises((ArrayError, TypeError), match=place):
            call(make())


def test_a_read_only_image():
    image = picture(4, 5)
    image.flags.writeable = False
    with pytest.raises(ArrayError, match="read-only"):
        interop_demo.blur_(image, 1)
    assert interop_demo.describe(interop_demo.edges(image))["readonly"] is False


@pytest.mark.parametrize(("radius", "error"), [
    (-1, (OverflowError, ValueError)), (2**64, (OverflowError, ValueError)), (1.0, TypeError), ("1", TypeError),
    (None, TypeError),
], ids=repr)
def test_bad_radius(radius, error):
    image = picture(4, 5)
    before = image.copy()
    with pytest.raises(error):
        interop_demo.blur_(image, radius)
    assert np.array_equal(image, before)


def test_an_image_that_is_not_aligned():
    data = np.zeros(4 * 60 + 1, "|u1")[1:].view("<f4").reshape(4, 5, 3)
    data[...] = 1
    try:
        interop_demo.blur_(data, 1)
    except ArrayError as error:
        assert "aligned" in str(error) or "alignment" in str(error)
    assert interop_demo.checksum(data) == 60


def test_many_threads_on_one_image():
    """Readers work at the same time; a writer has the image for itself or is refused."""
    image = np.ones((64, 64, 3), "f4")
    errors = []

    def read():
        for _ in range(20):
            interop_demo.edges(view)
            interop_demo.checksum(view)

    def write():
        for _ in range(20):
            try:
                interop_demo.blur_(view, 3)
                interop_demo.scale_(view, 1.0)
            except ArrayError as error:
                errors.append(str(error))

    view = image
    for work in ([read] * 4, [write] * 4):
        threads = [threading.Thread(target=function) for function in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if work[0] is read:
            assert not errors
    assert all("`data`" in error for error in errors)
    assert np.allclose(image, 1)
