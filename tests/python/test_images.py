"""`blur_` and `edges`: structs as arguments and return values, their results, and their refusals."""

import threading

import interop_demo
import numpy as np
import pytest
from capsules import CUDA, READ_ONLY, Producer, Tensor

Array = interop_demo.Array
ArrayError = interop_demo.ArrayError


def picture(height, width):
    return np.random.default_rng(height * 100 + width).random((height, width, 3), dtype="f4")


def blurred(image, radius):
    """The mean over the square around each pixel, cut off at the borders."""
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
    (lambda: np.ones((4, 5, 4), "f4"), r"shape\[2\]"),
    (lambda: np.ones((4, 5), "f4"), "shape"),
    (lambda: np.ones((1, 4, 5, 3), "f4"), "shape"),
    (lambda: np.ones((4, 5, 3), "f8"), "dtype"),
    (lambda: np.ones((4, 5, 3), "|u1"), "dtype"),
    (lambda: np.ones((4, 5, 6), "f4")[:, :, ::2], "strides"),
    (lambda: np.ones((4, 5, 3), "f4")[::-1], "strides"),
    (lambda: np.ones((3, 5, 4), "f4").T, "strides"),
    (lambda: np.broadcast_to(np.float32(1), (4, 5, 3)), "strides|readonly"),
    (lambda: Tensor(shape=(1, 2, 3), strides=None, device=(2, 0)).capsule(), "array|device"),
]


@pytest.mark.parametrize(("make", "place"), BAD_IMAGES)
def test_bad_images(make, place):
    """An argument that does not match the struct is refused; the error names the axis or the attribute."""
    for call in (lambda image: interop_demo.blur_(image, 1), interop_demo.edges):
        with pytest.raises((ArrayError, TypeError), match=place):
            call(make())


def test_callers_are_told_what_callers_can_do():
    """Advice for the author of a struct appears only in Rust, because the caller cannot change that code."""
    with pytest.raises(ArrayError, match="copy the array") as caught:
        interop_demo.edges(np.ones((4, 5, 3), "f4")[::-1])
    assert "struct" not in str(caught.value) and "`numpy.ascontiguousarray(x)`" in str(caught.value)


CURES = {
    "torch": ("x.to(torch.float32)", "x.contiguous()", "x.clone()", "by `x.cpu()`"),
    "cupy": ("x.astype(\"float32\")", "cupy.ascontiguousarray(x)", "x.copy()", "by `cupy.asnumpy(x)`"),
    "jaxlib": ("x.astype(\"float32\")", "numpy.ascontiguousarray(x)", "numpy.array", "by `numpy.asarray(x)`"),
    "unknown": ("`astype` of its library", "`ascontiguousarray` of its library", "numpy.array", "PyTorch's `x.cpu()`"),
}


@pytest.mark.parametrize("library", CURES)
@pytest.mark.parametrize("inherits", [False, True])
def test_a_cure_is_in_the_words_of_the_library(library, inherits):
    """Also for a subclass that the caller has defined."""
    Array = type("Array", (Producer,), {"__module__": f"{library}.arrays"})
    Array = type("Own", (Array,), {"__module__": "own"}) if inherits else Array
    tensors = [{"dtype": (2, 64, 1)}, {"strides": (-15, 3, 1)}, {"flags": READ_ONLY}, {"device": (CUDA, 0)}]
    for fields, cure in zip(tensors, CURES[library]):
        producer = Array(Tensor(**({"shape": (2, 5, 3), "dtype": (2, 32, 1)} | fields)))
        with pytest.raises(ArrayError) as caught:
            interop_demo.blur_(producer, 1)
        name = "own.Own" if inherits else f"{library}.arrays.Array"
        assert cure in str(caught.value) and str(caught.value).endswith(f"(from {name})")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3, "f4"), np.ones(3, "f4")), "`Array2`: `shape`: found 1 axis, shape [3], allowed: 2 axes"),
        ((np.ones((2, 3), "f8"), np.ones(3, "f4")), "`Array2`: `dtype`: found float64, allowed: float32"),
        ((np.ones((2, 3), "f4"), np.ones((3, 1), "f4")), "`Array1`: `shape`: found 2 axes, shape [3, 1], allowed: 1 axis"),
        ((np.ones((2, 3), "f4"), np.ones(3, "f8")), "`Array1`: `dtype`: found float64, allowed: float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_names_the_struct(arguments, message):
    """Otherwise a caller cannot tell which of two arrays is meant. PyO3 0.30 adds the parameter as a note."""
    with pytest.raises(ArrayError) as caught:
        interop_demo._weighted(*arguments)
    assert str(caught.value).startswith(message) and str(caught.value).endswith("(from numpy.ndarray)")
    parameter = "matrix" if "`Array2`" in message else "weights"
    assert getattr(caught.value, "__notes__", [f"while processing '{parameter}'"]) == [f"while processing '{parameter}'"]


def test_a_refusal_of_a_wrapped_struct_names_the_struct():
    """Also if the argument is converted, and within `Kept`."""
    matrix = np.ones((2, 3), "f4")
    assert interop_demo._both(matrix, [[1, 2]]) == 8
    for second, message in [(np.ones((2, 3, 4), "f4"), "`shape`: found 3 axes"), ([[1j]], "`array`: found complex128")]:
        with pytest.raises(ArrayError, match=f"^`Array2`: {message}"):
            interop_demo._both(matrix, second)


def test_arguments_whose_extents_must_agree():
    matrix = np.arange(6, dtype="f4").reshape(2, 3)
    assert interop_demo._weighted(matrix, np.array([1, 0, 2], "f4")) == [4, 13]
    for length in (0, 2, 4):
        with pytest.raises(ArrayError, match=f"^`weights.len`: found {length}, allowed: 3, as `matrix.columns`$"):
            interop_demo._weighted(matrix, np.ones(length, "f4"))


def test_an_import_in_two_steps_names_the_class():
    with pytest.raises(ArrayError, match=r"^`Array1`: `dtype`: found float64, allowed: bool; call `x.astype\(\"bool\"\)` \(from numpy.ndarray\)$"):
        interop_demo._in_two_steps(np.ones(3))
    assert interop_demo._in_two_steps(np.ones(3, "?")) == 3


@pytest.mark.parametrize("dtype", ["c8", "V4", [("x", "f4"), ("y", "f4")]], ids=["complex", "opaque", "struct"])
def test_no_advice_to_convert_what_would_be_lost(dtype):
    with pytest.raises(ArrayError, match=r"^`Array2`: `dtype`: found .*, allowed: float32 \(from numpy.ndarray\)(\n|$)"):
        interop_demo._weighted(np.zeros((2, 3), dtype), np.ones(3, "f4"))


def test_a_cure_where_the_array_is_not_known():
    """The loops over elements see only the memory."""
    with pytest.raises(ArrayError, match=r"`device`: found CUDA.*copy it to the host, such as by PyTorch's `x.cpu\(\)`"):
        interop_demo._doubled(Producer(Tensor(shape=(3, 3), dtype=(2, 32, 1), device=(CUDA, 0))))


def test_a_read_only_image():
    image = picture(4, 5)
    image.flags.writeable = False
    with pytest.raises(ArrayError, match=r"read-only.*`x.copy\(\)`"):
        interop_demo.blur_(image, 1)
    interop_demo.blur_(np.array(image), 1)
    assert interop_demo.describe(interop_demo.edges(image))["readonly"] is False


@pytest.mark.parametrize(
    ("radius", "error"),
    [
        (-1, (OverflowError, ValueError)), (2**64, (OverflowError, ValueError)), (1.0, TypeError), ("1", TypeError),
        (None, TypeError),
    ],
    ids=repr,
)
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
    """Readers run concurrently; a writer has exclusive access or is refused."""
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
