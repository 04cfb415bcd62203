"""Imports by the buffer protocol: what has no DLPack, and structs, which DLPack cannot express."""

import array
import ctypes
import gc
import mmap
import sys
import threading

import interop_demo
import numpy as np
import pytest
from scripts import run

describe = interop_demo.describe
ArrayError = interop_demo.ArrayError

HIT = np.dtype([("detector", "u1"), ("energy", "f8")], align=True)

# With padding at its end, which NumPy does not write into the format.
TAIL = np.dtype([("e", "f8"), ("k", "u1")], align=True)


class Hit(ctypes.Structure):
    _fields_ = [("detector", ctypes.c_ubyte), ("_pad", ctypes.c_ubyte * 7), ("energy", ctypes.c_double)]


class Unpadded(ctypes.Structure):
    _fields_ = [("detector", ctypes.c_ubyte), ("energy", ctypes.c_double)]


class Bits(ctypes.Structure):
    _fields_ = [("low", ctypes.c_int, 3), ("high", ctypes.c_int, 4)]


BUFFERS = {
    "bytearray": (bytearray(b"abc"), "|u1", (3,), False),
    "bytes": (b"abc", "|u1", (3,), True),
    "no bytes": (b"", "|u1", (0,), True),
    "memoryview": (memoryview(b"abcd"), "|u1", (4,), True),
    "cast": (memoryview(bytearray(16)).cast("f", (2, 2)), "<f4", (2, 2), False),
    "array": (array.array("h", [1, 2]), "<i2", (2,), False),
    "long": (array.array("l", [1]), f"<i{array.array('l').itemsize}", (1,), False),
    "ctypes": (((ctypes.c_float * 3) * 2)(), "<f4", (2, 3), False),
    "ctypes-bool": ((ctypes.c_bool * 2)(), "|b1", (2,), False),
    "ctypes-struct": ((Hit * 2)(), "|V16", (2,), False),
    "mmap": (mmap.mmap(-1, 8), "|u1", (8,), False),
    "scalar": (np.float32(2), "<f4", (), True),
    "struct": (np.zeros((2, 3), HIT), "|V16", (2, 3), False),
    "opaque": (np.zeros(2, "V3"), "|V3", (2,), False),
}


@pytest.mark.parametrize(("value", "dtype", "shape", "readonly"), BUFFERS.values(), ids=BUFFERS)
def test_buffers(value, dtype, shape, readonly):
    facts = describe(value)
    assert facts["protocol"] == "buffer" and facts["device"] == (1, 0)
    assert (facts["dtype"], facts["shape"], facts["readonly"]) == (dtype, shape, readonly)
    if facts["nbytes"]:
        assert facts["data"] == np.asarray(memoryview(value).cast("B") if readonly else value).__array_interface__["data"][0]


def test_strides_of_buffers():
    view = memoryview(b"abcdef")[::-2]
    facts = describe(view)
    assert facts["strides"] == (-2,) and bytes(view) == b"fdb"
    records = np.zeros((4, 6), HIT)[::-1, ::2]
    assert describe(records)["strides"] == (-6, 2)
    assert describe(records)["data"] == records.__array_interface__["data"][0]


def test_elements_are_shared_in_place():
    values = array.array("f", [1.0, 2.0])
    interop_demo.scale_(values, 3.0)
    assert list(values) == [3.0, 6.0]
    with pytest.raises(ArrayError, match="read-only"):
        interop_demo.scale_(memoryview(values).toreadonly(), 3.0)


def test_a_class_with_a_method_of_its_own():
    """`__buffer__` of Python 3.12."""
    if sys.version_info < (3, 12):
        pytest.skip("Python 3.12 lets Python classes lend buffers")

    class Own:
        def __buffer__(self, flags):
            return memoryview(b"abc")

    assert describe(Own())["shape"] == (3,)


# Structs


def test_records_are_structs():
    hits = np.array([(1, 0.5), (2, 2.0)], HIT)
    energy, address = interop_demo._energy(hits)
    assert energy == 4.5 and address == hits.__array_interface__["data"][0]
    interop_demo._heat(hits, 1.0)
    assert hits["energy"].tolist() == [1.5, 3.0]
    assert interop_demo._energy(hits[1:])[0] == interop_demo._energy(memoryview(hits)[1:])[0] == 6.0
    assert interop_demo._energy(hits.view(np.recarray))[0] == 7.5
    assert interop_demo._energy(np.array([], HIT))[0] == 0.0


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("detector", "u1"), ("energy", "f8")]),
        np.dtype([("detector", "u1"), ("power", "f8")], align=True),
        np.dtype([("detector", "i1"), ("energy", "f8")], align=True),
        np.dtype({"names": ["energy", "detector"], "formats": ["f8", "u1"], "offsets": [0, 8], "itemsize": 16}),
        np.dtype({"names": ["detector", "energy"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 24}),
    ],
    ids=["packed", "name", "sign", "order", "size"],
)
def test_other_records_are_refused(dtype):
    with pytest.raises(ArrayError, match=r"`dtype`: found struct .*detector.* \(from numpy.ndarray\)"):
        interop_demo._energy(np.zeros(2, dtype))


@pytest.mark.filterwarnings("ignore:A builtin ctypes object")
def test_places_that_a_format_does_not_state_are_refused():
    """The formats of ctypes state bit fields as whole numbers, and leave out base classes and the places in a union."""

    class Bits(ctypes.Structure):
        _fields_ = [("detector", ctypes.c_uint8, 4), ("energy", ctypes.c_double)]

    class Base(ctypes.Structure):
        _fields_ = [("detector", ctypes.c_uint8)]

    class Derived(Base):
        _fields_ = [("energy", ctypes.c_double)]

    class Either(ctypes.Union):
        _fields_ = [("detector", ctypes.c_uint8), ("energy", ctypes.c_double)]

    class Outer(ctypes.Structure):
        _fields_ = [("either", Either)]

    class Flag(ctypes.Structure):
        _fields_ = [("energy", ctypes.c_uint8, 4)]

    class Nested(ctypes.Structure):
        _fields_ = [("flags", Flag * 2), ("energy", ctypes.c_double)]

    class SameSize(Base):  # as without its base class
        _fields_ = [("kind", ctypes.c_uint8), ("number", ctypes.c_uint32)]

    class Plain(ctypes.Structure):
        _fields_ = [("detector", ctypes.c_uint8), ("rest", ctypes.c_uint8 * 7), ("energy", ctypes.c_double)]

    class WithMethods(Plain):
        """Without fields of its own."""

    reasons = {Bits: "bit fields", Flag: "bit fields", Nested: "bit fields", Derived: "a base class", SameSize: "a base class", Outer: ""}
    for item, words in reasons.items():
        for value in ((item * 2)(), memoryview((item * 2)())):
            with pytest.raises(ArrayError, match=f"`format`: .*{words}"):
                describe(value)
    for item in (Plain, WithMethods):
        assert describe((item * 2)())["dtype"] == "|V16"


def test_records_of_another_size_name_both_sizes():
    dtype = np.dtype({"names": ["detector", "energy"], "formats": ["u1", "f8"], "offsets": [0, 8], "itemsize": 24})
    with pytest.raises(ArrayError, match="of 24 bytes, allowed: one of 16 bytes.*align=True"):
        interop_demo._energy(np.zeros(2, dtype))


def test_records_go_round():
    """Rust's own records go out by the buffer protocol, and come in."""
    theirs = np.asarray(interop_demo._points())
    assert describe(theirs)["dtype"] == "|V16"
    assert describe(memoryview(interop_demo._packed_hits()))["dtype"] == "|V16"
    assert describe(interop_demo._packed_hits())["dtype"] == "|V16"


def test_nested_records():
    point = np.dtype([("x", "f4"), ("y", "f4")])
    assert describe(np.zeros(2, np.dtype([("h", TAIL), ("w", "f4")], align=True)))["dtype"] == "|V24"
    for inner in ([("p", point), ("w", "f4")], [("p", point, (2, 3)), ("w", "f4")], [("m", "f4", (2, 3))]):
        assert describe(np.zeros(2, inner))["dtype"] == f"|V{np.dtype(inner).itemsize}"


@pytest.mark.parametrize(
    "dtype",
    [HIT, TAIL, [("h", TAIL), ("w", "f4")], [("h", TAIL, 2), ("w", "f4")], [("o", "u4"), ("c", [("r", "u1", 3)], (2, 2))]],
    ids=["gap", "padding at the end", "nested", "array of padded structs", "array of arrays"],
)
def test_each_field_is_where_numpy_has_it(dtype):
    dtype = np.dtype(dtype, align=True)
    theirs = np.arange(3 * dtype.itemsize, dtype="u1").view(dtype)
    ours = np.asarray(interop_demo.asarray(theirs))
    fields = [(name, ours.dtype.fields[name][1]) for name in ours.dtype.names if not name.startswith("f")]
    assert fields == [(name, dtype.fields[name][1]) for name in dtype.names]
    for name in dtype.names:
        assert repr(ours[name].tolist()) == repr(theirs[name].tolist())


def test_without_numpy_no_format_of_a_struct_is_read():
    run("""
import ctypes, sys
sys.modules["numpy"] = None
import interop_demo

class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_float), ("y", ctypes.c_float)]

assert interop_demo.describe(bytearray(4))["shape"] == (4,)
try:
    interop_demo.describe((Point * 2)())
except interop_demo.ArrayError as error:
    assert "T{" in str(error) and "NumPy cannot read: ModuleNotFoundError" in str(error), error
else:
    raise AssertionError("read without NumPy")
""")


REFUSED = {
    "big-endian": (np.zeros(2, ">f4"), "byte order of this machine.*of `y = numpy.asarray"),
    "big-endian field": (np.zeros(2, [("x", ">f4")]), "native byte order"),
    "objects": (np.array([None]), "numbers"),
    "text": (np.array(["a"]), "numbers"),
    "bytes": (np.array([b"abc"]), "numbers"),
    "long double": (np.zeros(1, "longdouble"), r"numbers.*`numpy.asarray\(x\).astype\(\"float64\"\)`"),
}


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
def test_the_first_refusal_is_the_cause(value, words):
    with pytest.raises(ArrayError, match=rf"`(format|descr)`: .*({words}).*\(from numpy.ndarray\)") as caught:
        describe(value)
    assert type(caught.value.__cause__) is BufferError and "DLPack" in str(caught.value.__cause__)


@pytest.mark.filterwarnings("ignore:A builtin ctypes object")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Bits(), "bit fields"), (ctypes.c_void_p(), "numbers"), (ctypes.c_wchar("a"), "numbers"),
        ((ctypes.c_char * 3)(), "numbers"), (ctypes.pointer(ctypes.c_int()), "numbers"),
        (array.array("u", "ab"), "numbers"), (np.str_("ab"), "numbers"),
    ],
    ids=["bits", "pointer", "wchar", "char", "reference", "text", "numpy text"],
)
def test_other_formats_are_refused(value, words):
    with pytest.raises(ArrayError, match=f"`format`: .*{words}"):
        describe(value)


@pytest.mark.filterwarnings("ignore:A builtin ctypes object")
def test_padding_that_ctypes_leaves_out_is_known_to_the_class():
    """Before Python 3.12 the format of a struct has no padding between the fields."""
    for value in ((Unpadded * 2)((1, 0.5), (2, 2.0)), memoryview((Unpadded * 2)((1, 0.5), (2, 2.0)))):
        assert describe(value)["dtype"] == "|V16" and interop_demo._energy(value)[0] == 4.5


def test_dates_keep_their_advice():
    with pytest.raises(ArrayError, match='dates and times.*x.view."i8"') as caught:
        describe(np.zeros(2, "M8[s]"))
    assert "DLPack" in str(caught.value.__cause__)


@pytest.mark.parametrize("scalar", [np.datetime64("2020-01-01", "s"), np.timedelta64(5, "ms"), np.datetime64("NaT")], ids=repr)
def test_a_date_is_refused_as_an_array_of_dates_is(scalar):
    """Its buffer has eight bytes and says nothing of a date."""
    for function in (describe, interop_demo.asarray, interop_demo.checksum, interop_demo._like_i32):
        with pytest.raises((ArrayError, TypeError), match=r"datetime64|timedelta64|dates and times.*x\.view\(.i8.\)"):
            function(scalar)
    with pytest.raises(ArrayError, match=r"`typestr`: .*dates and times.*call `x\.view\(.i8.\)`.*numpy\.(date|time)"):
        describe(scalar)
    assert describe(scalar.view("i8"))["dtype"] == "<i8"


@pytest.mark.parametrize("scalar", [np.str_("abc"), np.longdouble(1), np.clongdouble(1)], ids=repr)
def test_other_scalars_without_a_type(scalar):
    with pytest.raises(ArrayError, match=f"`format`: .*{type(scalar).__name__}"):
        describe(scalar)


def test_a_method_that_is_overridden_is_the_last_word():
    class Closed(np.ndarray):
        def __dlpack__(self, **keywords):
            raise BufferError("closed")

    with pytest.raises(BufferError, match="^closed$"):
        describe(np.zeros(2, HIT).view(Closed))


def test_exceptions_of_the_exporter_are_passed_on():
    view = memoryview(b"abc")
    view.release()
    with pytest.raises(ValueError, match="released memoryview"):
        describe(view)
    closed = mmap.mmap(-1, 8)
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        describe(closed)


def test_masked_records_are_refused():
    masked = np.ma.array(np.zeros(2, HIT), mask=[(True, False), (False, False)])
    with pytest.raises(ArrayError, match="mask"):
        describe(masked)


# How long a buffer is lent


def test_lent_memory_is_not_resized():
    for values in (bytearray(8), array.array("d", [1.0])):
        lent = interop_demo.asarray(values)
        with pytest.raises(BufferError):
            values.append(1)
        again = np.from_dlpack(lent)
        del lent
        gc.collect()
        with pytest.raises(BufferError):
            values.extend(values)
        del again
        values.append(1)


def test_lent_memory_is_not_closed():
    memory = mmap.mmap(-1, 8)
    lent = interop_demo.asarray(memory)
    with pytest.raises(BufferError):
        memory.close()
    view = memoryview(bytearray(8))
    lent = [lent, interop_demo.asarray(view)]
    with pytest.raises(BufferError):
        view.release()
    lent.clear()
    memory.close()
    view.release()


def test_the_lender_of_the_memory_stays_alive():
    lent = interop_demo.asarray(bytearray(b"\1\2\3"))
    gc.collect()
    assert interop_demo.checksum(lent) == 6


def test_python_code_does_not_find_the_buffer():
    values = bytearray(8)
    lent = interop_demo.asarray(values)
    assert not any(isinstance(other, memoryview) and other.obj is values for other in gc.get_objects())
    assert not [other for other in gc.get_referrers(values) if isinstance(other, memoryview)]
    assert interop_demo.checksum(lent) == 0


def test_refused_buffers_are_released():
    values = bytearray(8)
    for _ in range(3):
        with pytest.raises(ArrayError):
            interop_demo.is_square(values)
        with pytest.raises(ArrayError):
            describe(memoryview(values).cast("c"))
    values.append(1)


def test_references_do_not_grow():
    hits, values = np.zeros(4, HIT), bytearray(8)
    counts = sys.getrefcount(hits), sys.getrefcount(values)
    for _ in range(1000):
        interop_demo._energy(hits)
        describe(values)
    assert (sys.getrefcount(hits), sys.getrefcount(values)) == counts


def test_threads_share_a_lender():
    values = bytearray(1 << 10)

    def body():
        for _ in range(500):
            assert interop_demo.checksum(values) == 0

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values.append(1)


def test_a_detached_drop_is_deferred():
    """A consumer that calls the deleter without the interpreter's lock."""
    run("""
import ctypes, gc
from capsules import release, take
import interop_demo

values = bytearray(b"abc")
tensor = take(interop_demo.asarray(values).__dlpack__(max_version=(1, 0)))
gc.collect()
release(tensor)
try:
    values.append(1)
except BufferError:
    interop_demo.describe(b"")
else:
    raise AssertionError("released by a thread that is not attached")
values.append(1)
""")


def test_buffers_outlive_the_interpreter():
    run("""
import interop_demo

kept = [interop_demo.asarray(bytearray(8)), interop_demo.asarray(memoryview(b"abc"))]
import sys
sys.kept = kept
""")
