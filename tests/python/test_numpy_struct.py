"""Arrays of NumPy are read from their C struct, and give what NumPy's own `__dlpack__` gives, or its exception."""

import gc
import importlib
import sys
import tempfile
import threading

import interop_demo
import numpy as np
import pytest
from scripts import run

describe = interop_demo.describe


class Speaker:
    """Has only the methods of DLPack of an array."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def facts_of(array):
    """The facts without the protocol, or the class and the text of the exception."""
    try:
        facts = describe(array)
    except Exception as error:
        return type(error), str(error)
    return {name: fact for name, fact in facts.items() if name != "protocol"}


def assert_read(array):
    """Read from the struct, with the facts of NumPy's DLPack."""
    assert describe(array)["protocol"] == "numpy"
    assert facts_of(array) == facts_of(Speaker(array))
    back = interop_demo.asarray(array)
    assert describe(back)["data"] == describe(array)["data"]


def memory_mapped():
    with tempfile.TemporaryFile() as file:
        file.write(bytes(48))
        file.flush()
        return np.memmap(file, "f4", "r+", shape=(3, 4))


def read_only_map():
    with tempfile.TemporaryFile() as file:
        file.write(bytes(48))
        file.flush()
        return np.memmap(file, "f4", "r", shape=(3, 4))


def unaligned():
    return np.zeros(65, "u1")[1:].view("f8")


def copied_back():
    tests = pytest.importorskip("numpy._core._multiarray_tests", reason="this NumPy comes without its test modules")
    array = tests.npy_create_writebackifcopy(np.zeros((4, 3), "f4").T)
    assert array.flags.writebackifcopy
    return array


def frozen(array):
    array.flags.writeable = False
    return array


class Mine(np.ndarray):
    pass


class Slotted(np.ndarray):
    __slots__ = ()


READ = {
    "0-d": lambda: np.array(2.5),
    "five axes": lambda: np.zeros((2, 1, 3, 2, 2), "i2")[:, :, ::-1],
    "64 axes": lambda: np.zeros((1,) * (64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32), "u1"),
    "negative": lambda: np.zeros((4, 6), "f4")[::-2, ::-1],
    "broadcast": lambda: np.broadcast_to(np.float64(1), (3, 4)),
    "read-only": lambda: frozen(np.zeros(3)),
    "warn on write": lambda: np.broadcast_arrays(np.zeros((3, 1)), np.zeros((1, 4)))[0],
    "unaligned": unaligned,
    "copied back": copied_back,
    "empty": lambda: np.zeros((3, 0, 2)),
    "empty, any strides": lambda: np.lib.stride_tricks.as_strided(np.zeros(1), (0, 3), (8 * 10**6, -16)),
    "one element, any stride": lambda: np.lib.stride_tricks.as_strided(np.zeros(1), (1,), (8 * 10**6,)),
    "memmap": memory_mapped,
    "read-only memmap": read_only_map,
    "matrix": lambda: np.ones((2, 2)).view(np.matrix),
    "recarray of floats": lambda: np.ones(3).view(np.recarray),
    "masked array": lambda: np.ma.array([1.0, 2.0]),
    "masked array without a hit": lambda: np.ma.array([1.0, 2.0], mask=[False, False]),
    "subclass": lambda: np.ones((2, 3), "c8").view(Mine),
    "subclass without a dict": lambda: np.ones((2, 3), "?").view(Slotted),
    "view of a view": lambda: np.ones((4, 4)).view(Mine)[1:][:, 1:].view(np.ndarray),
    "bytes of another owner": lambda: np.frombuffer(b"12345678", "u2"),
    "long": lambda: np.zeros(2, np.dtype("l")),
    "long long": lambda: np.zeros(2, np.dtype("q")),
    "int": lambda: np.zeros(2, np.dtype("i")),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning", "ignore:.*WRITEBACKIFCOPY")
@pytest.mark.parametrize("make", READ.values(), ids=READ)
def test_what_is_read(make):
    assert_read(make())


LEFT = {
    "foreign byte order": lambda: np.zeros(3, np.dtype("f4").newbyteorder("S")),
    "structs": lambda: np.zeros(3, "i4,f4"),
    "records": lambda: np.rec.array([(1, 2.0)], dtype="i4,f4"),
    "opaque bytes": lambda: np.zeros(3, "V4"),
    "objects": lambda: np.zeros(3, object),
    "text": lambda: np.zeros(3, "U4"),
    "dates": lambda: np.zeros(3, "M8[s]"),
    "spans": lambda: np.zeros(3, "m8[s]"),
    "long double": lambda: np.zeros(3, np.longdouble),
    "complex long double": lambda: np.zeros(3, np.clongdouble),
    "between elements": lambda: np.zeros(3, "i4,i2")["f0"],
    "overlapping halves": lambda: np.lib.stride_tricks.as_strided(np.zeros(3), (4,), (4,)),
    "one element, half a stride": lambda: np.lib.stride_tricks.as_strided(np.zeros(1), (1,), (3,)),
    "empty, half a stride": lambda: np.lib.stride_tricks.as_strided(np.zeros(1), (0, 2), (3, 5)),
    "of a capsule": lambda: np.from_dlpack(interop_demo.Array.full((2, 3), 1.0))[1:],
    "rational numbers": lambda: np.zeros(3, importlib.import_module("numpy._core._rational_tests").rational),
}


@pytest.mark.parametrize("make", LEFT.values(), ids=LEFT)
def test_what_is_left_to_numpy(make):
    """With its exceptions, or by the buffer protocol."""
    array = make()
    try:
        protocol = describe(array)["protocol"]
    except (BufferError, ValueError, TypeError) as refused:
        theirs = None
        try:
            array.__dlpack__()
        except Exception as error:
            theirs = error
        assert isinstance(refused, type(theirs))
    else:
        assert protocol in ("dlpack_versioned", "buffer")


def other_memory():
    """An array that `__dlpack__` gives in place of the object's own memory."""
    return np.full((5,), 7, "i2")


def by_class(other):
    return type("Own", (np.ndarray,), {"__dlpack__": lambda self, **words: other.__dlpack__(**words)})


def by_lookup(other):
    def __getattribute__(self, name):
        return other.__dlpack__ if name == "__dlpack__" else np.ndarray.__getattribute__(self, name)

    return type("Looked", (np.ndarray,), {"__getattribute__": __getattribute__})


def by_property(other):
    return type("Property", (np.ndarray,), {"__dlpack__": property(lambda self: other.__dlpack__)})


@pytest.mark.parametrize("make", [by_class, by_lookup, by_property])
def test_a_method_of_the_class_comes_first(make):
    other = other_memory()
    array = np.zeros((2, 3)).view(make(other))
    assert describe(array)["data"] == other.ctypes.data
    assert describe(array)["protocol"] == "dlpack_versioned"


def test_a_method_of_the_object_comes_first():
    """Also one that appears after the class was seen, and one of another array, which is a function in C."""
    other, array = other_memory(), np.zeros((2, 3)).view(Mine)
    assert describe(array)["protocol"] == "numpy"
    array.__dlpack__ = lambda **words: other.__dlpack__(**words)
    assert describe(array)["data"] == other.ctypes.data
    array.__dlpack__ = other.__dlpack__
    assert describe(array)["data"] == other.ctypes.data
    del array.__dlpack__
    assert describe(array)["protocol"] == "numpy"
    # Another function in C that belongs to the same object.
    array.__dlpack__ = array.__dlpack_device__
    with pytest.raises(TypeError):
        describe(array)


def test_a_class_may_change():
    class Changing(np.ndarray):
        pass

    other, array = other_memory(), np.zeros((2, 3)).view(Changing)
    assert describe(array)["protocol"] == "numpy"
    Changing.__dlpack__ = lambda self, **words: other.__dlpack__(**words)
    assert describe(array)["data"] == other.ctypes.data
    Changing.__dlpack__ = None
    assert describe(array)["protocol"] == "buffer"
    del Changing.__dlpack__
    assert describe(array)["protocol"] == "numpy"


def test_exceptions_of_a_lookup():
    class Raising(np.ndarray):
        def __getattribute__(self, name):
            if name == "__dlpack__":
                raise self.error
            return np.ndarray.__getattribute__(self, name)

    array = np.zeros(3).view(Raising)
    for error in (RuntimeError("own"), KeyboardInterrupt()):
        array.error = error
        with pytest.raises(type(error)):
            describe(array)


def test_masked_elements_are_still_refused():
    array = np.ma.array([1.0, 2.0], mask=[True, False])
    with pytest.raises(interop_demo.ArrayError, match="masked elements"):
        describe(array)


def test_a_reference_is_held_and_given_up():
    array = np.zeros((2, 3))
    before = sys.getrefcount(array)
    held = [interop_demo.asarray(array) for _ in range(3)]
    assert sys.getrefcount(array) == before + 3
    with pytest.raises(ValueError, match="resize"):
        array.resize((100, 100))
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(array) == before
    for refused in (np.zeros(3, ">f4"), np.zeros(3, object)):
        before = sys.getrefcount(refused)
        with pytest.raises(BufferError):
            interop_demo.asarray(refused)
        gc.collect()
        assert sys.getrefcount(refused) == before


def test_an_array_that_is_resized_nevertheless():
    """As with NumPy's own tensor, which holds a reference only: nothing is read, and nothing is released twice."""
    array = np.zeros(4)
    held = interop_demo.asarray(array)
    array.resize(10**6, refcheck=False)
    assert describe(array)["shape"] == (10**6,)
    assert held.shape == (4,)
    del held
    assert array.sum() == 0


def test_an_array_that_changes_between_calls():
    """Shape, strides and dtype are read anew each time."""
    array = np.zeros((4, 6), "f4")
    for change in (("shape", (3, 8)), ("dtype", np.dtype("i4")), ("shape", (24,)), ("dtype", np.dtype("f8")), ("shape", (2, 2, 3))):
        setattr(array, *change)
        assert_read(array)
    array.flags.writeable = False
    assert describe(array)["readonly"]


def test_a_thread_that_changes_the_array():
    """No call sees a shape of one moment with the strides of another, because the interpreter's lock is held between."""
    array, done = np.zeros((4, 6), "f4"), threading.Event()

    def change():
        while not done.is_set():
            array.shape = (6, 4)
            array.shape = (2, 2, 6)
            array.shape = (4, 6)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=change)
    thread.start()
    try:
        seen = {(facts["shape"], facts["strides"]) for facts in (describe(array) for _ in range(20_000))}
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)
    assert seen <= {((4, 6), (6, 1)), ((6, 4), (4, 1)), ((2, 2, 6), (12, 6, 1))}


FAKED = """
import ctypes, sys
import numpy as np
try:
    from numpy._core import _multiarray_umath as core
except ImportError:
    from numpy.core import _multiarray_umath as core

api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
entries = 400
table = (ctypes.c_void_p * entries).from_address(api.PyCapsule_GetPointer(core._ARRAY_API, None))
faked = (ctypes.c_void_p * entries)(*[table[at] for at in range(300)])
"""


@pytest.mark.parametrize(
    "change",
    [
        # Another major version of the table.
        "function = ctypes.CFUNCTYPE(ctypes.c_uint)(lambda: 0x03000000)\nfaked[0] = ctypes.cast(function, ctypes.c_void_p)",
        # A new array is not what was asked for, as if its fields were elsewhere.
        """New = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int] + [ctypes.c_void_p] * 2 + [ctypes.c_int] * 2 + [ctypes.c_void_p])
function = New(lambda *arguments: np.zeros((2, 3), ANOTHER))
faked[93] = ctypes.cast(function, ctypes.c_void_p)""".replace("ANOTHER", "'f8'"),
    ],
    ids=["version", "struct"],
)
def test_a_numpy_that_is_not_known_is_asked(change):
    """The step is off, and everything works without it."""
    run(
        FAKED
        + change
        + """
core._ARRAY_API = api.PyCapsule_New(ctypes.addressof(faked), None, None)
import interop_demo
array = np.arange(6, dtype="f4").reshape(2, 3)
facts = interop_demo.describe(array)
assert facts["protocol"] == "dlpack_versioned" and facts["data"] == array.ctypes.data, facts
assert interop_demo.checksum(array) == 15
"""
    )


# Element types that packages register

SMALL = [
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int4", "uint4",
]


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("name", SMALL)
def test_types_of_ml_dtypes(name):
    """There and back, in place, whatever the layout."""
    dtype = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    whole = np.array([0.5, 1, 2, 4] * 6, "f4").astype(dtype).reshape(4, 6)
    for source in (whole, whole[::-1, ::2], whole.T, whole[1, 2, ...], whole[:0], whole.view(Mine), np.broadcast_to(whole[0], (7, 6))):
        facts = describe(source)
        assert (facts["protocol"], facts["dtype"], facts["shape"]) == ("numpy", name, source.shape)
        assert facts["nbytes"] == source.nbytes
        assert facts["readonly"] is not source.flags.writeable
        assert source.size == 0 or facts["data"] == source.ctypes.data
        array = interop_demo.asarray(source)
        assert (array.dtype, array.shape) == (dtype, source.shape)
        for seen in (np.asarray(array), np.asarray(interop_demo._exported(array)), interop_demo._as_numpy(source)):
            assert (seen.dtype, seen.shape) == (dtype, source.shape)
            assert seen.astype("f4").tolist() == source.astype("f4").tolist()
            assert source.size == 0 or np.shares_memory(seen, source)


@pytest.mark.needs("ml_dtypes")
def test_bfloat16_in_all_functions():
    """Those of the module that compute, and a struct of `half::bf16`."""
    bfloat16 = importlib.import_module("ml_dtypes").bfloat16
    array = np.arange(6, dtype="f4").astype(bfloat16).reshape(2, 3)
    assert interop_demo.checksum(array) == 15
    interop_demo.scale_(array, 2.0)
    assert array.astype("f4").tolist() == [[0, 2, 4], [6, 8, 10]]
    twice = interop_demo.twice(array)
    assert type(twice) is np.ndarray and twice.dtype == bfloat16 and not np.shares_memory(twice, array)
    assert twice.astype("f4").tolist() == [[0, 4, 8], [12, 16, 20]]
    came = interop_demo._as_it_came(array)
    assert type(came) is np.ndarray and came.dtype == bfloat16 and np.shares_memory(came, array)
    assert interop_demo._like_bf16(array[0]) == 3
    halves = interop_demo._ones_like_bf16(array)
    assert type(halves) is np.ndarray and halves.dtype == bfloat16 and halves.astype("f4").tolist() == [[1, 1, 1]] * 2
    array.flags.writeable = False
    with pytest.raises(interop_demo.ArrayError, match="read-only"):
        interop_demo.scale_(array, 2.0)
    with pytest.raises(interop_demo.ArrayError, match="found bfloat16, allowed: float32"):
        interop_demo.is_square(np.zeros((2, 2), bfloat16))


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("name", [name for name in SMALL if name != "bfloat16"])
def test_types_without_arithmetic(name):
    """They come in and out, and the functions that compute name what they can."""
    array = np.ones((2, 2), getattr(importlib.import_module("ml_dtypes"), name))
    for function in (interop_demo.checksum, interop_demo.twice, lambda array: interop_demo.scale_(array, 2.0)):
        with pytest.raises(interop_demo.ArrayError, match=f"found {name}, allowed: "):
            function(array)


@pytest.mark.needs("ml_dtypes")
def test_foreign_byte_order_of_a_registered_type():
    bfloat16 = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    array = np.zeros(3, bfloat16.newbyteorder("S"))
    if array.dtype == bfloat16:
        pytest.skip("this dtype has no byte order")
    with pytest.raises(BufferError):
        describe(array)


@pytest.mark.needs("ml_dtypes")
def test_a_type_of_another_package_is_left_to_numpy():
    """Its name alone says nothing about its bits."""
    run(
        """
import ml_dtypes, numpy as np
ml_dtypes.bfloat16.__module__ = "other"
assert np.dtype(ml_dtypes.bfloat16).name == "bfloat16"
import interop_demo
try:
    interop_demo.describe(np.zeros(3, ml_dtypes.bfloat16))
except BufferError as error:
    assert type(error) is BufferError, error
else:
    raise AssertionError("not refused")
"""
    )


@pytest.mark.needs("ml_dtypes")
def test_numpy_gets_the_type_of_an_array_without_a_format():
    """The buffer protocol has no format for it, and NumPy would take the array for one object."""
    script = """
import interop_demo, numpy as np
array = interop_demo.Array.full((2, 3), 1.5, "bfloat16")
try:
    np.asarray(array)
except interop_demo.ArrayError as error:
    assert "found bfloat16" in str(error) and "`import ml_dtypes` adds" in str(error), error
else:
    raise AssertionError("not refused")
import ml_dtypes
seen = np.asarray(array)
assert seen.dtype == ml_dtypes.bfloat16 and seen.shape == (2, 3) and (seen == 1.5).all()
seen[0, 0] = 4
assert interop_demo.checksum(array) == 11.5
assert np.array(array, "f4").sum() == 11.5
"""
    run(script)
