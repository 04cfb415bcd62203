"""`ArrayLike`: arguments that are only read, which NumPy converts where they do not fit."""

import array
import sys
import threading

import interop_demo
import numpy as np
import pytest
from capsules import CUDA, Producer, Tensor
from scripts import run

ArrayError = interop_demo.ArrayError
f64, f32, i32, u64 = (getattr(interop_demo, f"_like_{name}") for name in ("f64", "f32", "i32", "u64"))


def where(values):
    return values.__array_interface__["data"][0]


def test_what_fits_is_used_in_place():
    for values in (np.ones(3), np.zeros(0), np.ones((3, 4))[1], np.lib.stride_tricks.as_strided(np.ones(1), (1,), (99,))):
        address, elements = f64(values)
        assert elements == values.tolist() and (address == where(values) or not len(values))
    readonly = np.ones(2)
    readonly.flags.writeable = False
    assert f64(readonly)[0] == where(readonly)
    lent = array.array("d", [1.0, 2.0])
    assert f64(lent) == (lent.buffer_info()[0], [1.0, 2.0])
    columns = np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3))
    assert interop_demo._like_columns(columns)[0] == where(columns)


class Listed:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3)


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 2], (0.0, 1.0, 2.0), range(3), np.arange(3, dtype="i1"), np.arange(3, dtype="u8"),
        np.arange(3, dtype="f4"), np.arange(3, dtype=">f8"), np.repeat(np.arange(3.0), 2)[::2],
        array.array("b", [0, 1, 2]), bytearray([0, 1, 2]), Listed(), [np.float32(0), np.int8(1), 2], [0, True, 2],
    ],
    ids=lambda values: type(values).__name__,
)
def test_what_numpy_converts(values):
    assert f64(values)[1] == f32(values)[1] == [0.0, 1.0, 2.0]


def test_memory_order_and_alignment():
    rows = np.arange(6, dtype="f4").reshape(2, 3)
    address, elements = interop_demo._like_columns(rows)
    assert elements == [0, 1, 2, 3, 4, 5] and address != where(rows)
    assert interop_demo._like_columns(rows.tolist())[1] == elements
    assert interop_demo._like_inner(rows.astype("i4")) == (0, elements)
    assert f64(np.arange(3.0)[::-1])[1] == [2.0, 1.0, 0.0]
    unaligned = np.frombuffer(bytearray(25), "u1")[1:].view("f8")
    address, elements = f64(unaligned)
    assert elements == [0.0] * 3 and address % 8 == 0
    packed = np.zeros(3, [("a", "u1"), ("b", "f8")])["b"]
    assert f64(packed)[1] == [0.0] * 3


def test_elements_that_are_arrays():
    assert interop_demo._like_points([[1, 2], [3, 4]]) == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ArrayError, match="shape"):
        interop_demo._like_points([[1, 2, 3]])
    with pytest.raises(ArrayError, match=r"found 1 axis, shape \[2\], allowed: 2 axes"):
        interop_demo._like_points([1.0, 2.0])


# Values


def test_integers_fit_or_are_refused():
    assert i32([2**31 - 1, -(2**31)])[1] == [2**31 - 1, -(2**31)]
    assert i32(np.array([7], "u8"))[1] == [7] and i32([True, False])[1] == [1, 0]
    assert u64(np.array([2**64 - 1], "u8")) == [2**64 - 1] and u64([5]) == [5]
    for convert, value, words in [
        (i32, 2**31, "found 2147483648, allowed: -2147483648 to 2147483647, the values of int32"),
        (i32, 2**40, "found 1099511627776"),
        (i32, -(2**31) - 1, "found -2147483649"),
        (u64, -1, "found -1, allowed: 0 to 18446744073709551615, the values of uint64"),
    ]:
        for values in ([value], np.array([0, value, 0])):
            with pytest.raises(ArrayError, match=words):
                convert(values)


def test_floats_round_and_stay_finite():
    assert f32([0.1])[1] == [float(np.float32(0.1))]
    assert f32([float("inf"), float("-inf")])[1] == [float("inf"), float("-inf")]
    assert np.isnan(f32([float("nan")])[1][0])
    assert f32([2**24 + 1])[1] == [2.0**24]
    with pytest.raises(ArrayError, match="becomes infinite.*float32"):
        f32([1e300, float("inf")])


@pytest.mark.parametrize(
    ("convert", "values", "found"),
    [
        (i32, [1.0], "float64"),
        (i32, np.ones(2, "c8"), "complex64"),
        (f64, [1j], "complex128"),
        (f64, ["1.5"], "<U3"),
        (f64, b"1.5", r"\|S3"),
        (f64, [None], "object"),
        (f64, [2**70, None], "object"),
        (i32, np.zeros(2, "m8[s]"), r"timedelta64\[s\]"),
        (i32, np.zeros(2, "M8[s]"), r"datetime64\[s\]"),
        (interop_demo._like_flags, [1, 0], "int64"),
        (f64, np.zeros(2, "f8,f8"), "f0"),
    ],
)
def test_lossy_conversions_are_refused(convert, values, found):
    with pytest.raises(ArrayError, match=f"`array`: found .*{found}.*without a loss") as caught:
        convert(values)
    assert caught.value.__cause__ is not None


def test_empty_arrays_have_every_type():
    for empty in ([], (), np.zeros(0), np.zeros(0, "c8"), np.array([], object), np.array([], "U3")):
        assert i32(empty)[1] == f64(empty)[1] == interop_demo._like_flags(empty) == []


def test_flags():
    assert interop_demo._like_flags([True, False]) == interop_demo._like_flags(np.array([1, 0], bool)) == [True, False]
    with pytest.raises(ArrayError):
        interop_demo._like_flags(np.array([2, 0], "u1").view(bool))


# Refusals


def test_the_first_refusal_is_the_cause():
    with pytest.raises(ArrayError, match=r"`array`: .*\(from list\)") as caught:
        i32([1.5])
    assert "found list, allowed: an object with `__dlpack__`" in str(caught.value.__cause__)
    with pytest.raises(ArrayError, match=r"float64.*\(from numpy.ndarray\)") as caught:
        i32(np.ones(2))
    assert "`dtype`: found float64, allowed: int32" in str(caught.value.__cause__)
    with pytest.raises(ArrayError, match=r"2 axes.*\(from list\)") as caught:
        f64([[1.0]])
    assert "found list" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="inhomogeneous") as caught:
        f64([[1.0], [1.0, 2.0]])
    assert "found list" in str(caught.value.__cause__)


def test_other_refusals_are_unchanged():
    with pytest.raises(ArrayError, match="2 axes") as caught:
        f64(np.ones((2, 2)))
    assert caught.value.__cause__ is None
    for other in (object(), None, {1: 2}, {1, 2}, "text", f64):
        with pytest.raises(ArrayError, match="without a loss"):
            f64(other)


def test_masks_are_not_dropped():
    for masked in (np.ma.array([1.0, 2.0], mask=[True, False]), np.ma.array([1, 2], mask=[True, False])):
        with pytest.raises(ArrayError, match="masked"):
            f64(masked)
    assert f64(np.ma.array([1.0, 2.0]))[1] == [1.0, 2.0]
    with pytest.raises(ArrayError, match="`dtype`: found int64"):
        f64(np.ma.array([1, 2]))


class OnDevice:
    """NumPy would copy it to the host, as it does Numba's arrays and those of JAX."""

    copies = 0

    def __dlpack_device__(self):
        return (CUDA, 0)

    def __dlpack__(self, **keywords):
        raise BufferError("not now")

    def __array__(self, dtype=None, copy=None):
        OnDevice.copies += 1
        return np.zeros(2)


def test_masks_within_lists_are_not_dropped():
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
    for values in ([1.0, np.ma.masked], [np.float64(1), np.ma.masked], (np.ma.masked,)):
        with pytest.raises(ArrayError, match="masked elements"):
            f64(values)
    with pytest.raises(ArrayError, match="masked elements"):
        interop_demo._like_columns([masked, masked])
    assert f64([np.ma.array(1.0), 2])[1] == [1.0, 2.0]


def test_warnings_of_numpy_are_not_errors():
    """What rounds to zero is rounded; what becomes infinite is one error of ours."""
    with np.errstate(all="raise"):
        assert f32(np.array([1e-300]))[1] == [0.0]
        with pytest.raises(ArrayError, match="becomes infinite"):
            f32(np.array([1e300]))
        with pytest.raises(FloatingPointError):
            np.array([1e300]).astype("f4")


def test_memory_of_a_device_is_not_copied():
    interface = type("Numba", (OnDevice,), {"__dlpack_device__": None, "__dlpack__": None, "__cuda_array_interface__": {}})
    for value in (OnDevice(), interface()):
        with pytest.raises(Exception, match="not now|shape|driver|CUDA|no such key"):
            f64(value)
    assert OnDevice.copies == 0
    with pytest.raises((BufferError, RuntimeError)):
        f64(Producer(Tensor(device=(CUDA, 0))))


def test_only_what_numpy_can_cure_is_converted():
    """An error that says more than that the object has no protocol, or none for its elements."""

    class Refusing:
        def __init__(self, error):
            self.error = error

        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **wishes):
            raise self.error

        def __array__(self, dtype=None, copy=None):
            return np.ones(3)

    for error in (BufferError("no"), TypeError("no"), NotImplementedError("no")):
        assert f64(Refusing(error))[1] == [1.0, 1.0, 1.0]
    for error in (RuntimeError("freed"), ValueError("meta"), MemoryError(), RecursionError(), OSError()):
        with pytest.raises(type(error)):
            f64(Refusing(error))

    class Freed(Producer):
        __array__ = Refusing.__array__

    with pytest.raises(ArrayError, match="an offset from null"):
        f32(Freed(Tensor(shape=(3,), strides=(1,), data=4)))


def test_integers_that_always_fit_are_copied_once(monkeypatch):
    """`astype` alone; the other integers are copied before their range is checked."""
    copies = []

    class Counting(np.ndarray):
        def copy(self, *arguments, **keywords):
            copies.append("copy")
            return super().copy(*arguments, **keywords)

        def astype(self, dtype, *arguments, **keywords):
            copies.append(keywords["casting"])
            return self.view(np.ndarray).astype(dtype, *arguments, **keywords)

    monkeypatch.setattr(np, "asarray", lambda array, asarray=np.asarray: array if isinstance(array, Counting) else asarray(array))
    for kind, found in (("i2", ["safe"]), ("u2", ["safe"]), ("i8", ["copy", "unsafe"]), ("u4", ["copy", "unsafe"])):
        copies.clear()
        assert i32(np.arange(3).astype(kind).view(Counting))[1] == [0, 1, 2]
        assert copies == found, kind


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 2")
def test_texts_are_no_numbers():
    """NumPy casts texts to bools, and "False" is True."""
    texts = np.array(["False", "0"], dtype=np.dtypes.StringDType())
    for function in (interop_demo._like_flags, i32, f64):
        with pytest.raises(ArrayError, match="`array`: found StringDType"):
            function(texts)


def test_interrupts_are_passed_on():
    class Interrupting:
        @property
        def __dlpack__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        f64(Interrupting())

    class Later:
        def __array__(self, dtype=None, copy=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        f64(Later())


def test_an_exception_is_not_its_own_cause():
    shared = TypeError("no")

    class Fails:
        @property
        def __dlpack__(self):
            raise shared

        def __array__(self, dtype=None, copy=None):
            raise shared

    with pytest.raises(TypeError, match="no") as caught:
        f64(Fails())
    assert caught.value is not caught.value.__cause__


def test_structs_and_rare_types_must_fit():
    hit = np.dtype([("detector", "u1"), ("energy", "f8")], align=True)
    assert interop_demo._like_hits(np.zeros(3, hit)) == 3
    assert interop_demo._like_hits(np.zeros(6, hit)[::-2]) == 3
    with pytest.raises(ArrayError, match="struct"):
        interop_demo._like_hits([(1, 2.0)])
    assert interop_demo._like_bf16(Producer(Tensor(shape=(2,), strides=(1,), dtype=(4, 16, 1)))) == 2
    with pytest.raises(ArrayError, match=r"found list, allowed: an array of bfloat16 as it is.*NumPy cannot") as caught:
        interop_demo._like_bf16([1.0])
    assert "found list" in str(caught.value.__cause__)


def test_without_numpy_the_first_refusal_stays():
    run("""
import sys
sys.modules["numpy"] = None
import interop_demo
try:
    interop_demo._like_f64([1.0])
except ImportError as error:
    assert "found list" in str(error.__cause__), error.__cause__
else:
    raise AssertionError
""")


def test_references_do_not_grow():
    values, wrong = np.ones(4), np.ones(4, "i8")
    counts = sys.getrefcount(values), sys.getrefcount(wrong)
    for _ in range(1000):
        f64(values)
        f64(wrong)
        with pytest.raises(ArrayError):
            i32(values)
    assert (sys.getrefcount(values), sys.getrefcount(wrong)) == counts


def test_threads_convert_at_once():
    def body():
        for _ in range(200):
            assert f64([1, 2])[1] == [1.0, 2.0]

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
