"""The objects that can be imported: unsupported ones, their devices, objects that change (R117 to R119, bugs 153,
157).

Their interfaces are in test_cai_objects.py.
"""

import collections
import enum
import inspect
import itertools
import re
import sys

import interop_demo
import numpy as np
import pytest
from capsules import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, ROCM, Producer, Tensor, raising
from interfaces import DICT, dict_with

ArrayError = interop_demo.ArrayError
describe = interop_demo.describe
Device = enum.IntEnum("Device", {"CPU": CPU, "CUDA": CUDA, "PINNED": CUDA_HOST})
# Not ints, but the type of a device in the array API standard.
Word = enum.Enum("Word", {"CPU": CPU, "NAMED": "cpu"})


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        ("describe", "(obj, *, stream=None)"), ("asarray", "(obj, *, stream=None)"), ("parse_cai", "(d)"),
        ("scale_", "(obj, factor, *, stream=None, then=None)"), ("checksum", "(obj, *, stream=None)"), ("live_allocations", "()"),
        ("live_exports", "()"), ("pending_releases", "()"),
    ],
)
def test_signatures(function, signature):
    """The public signatures of the module, which must not change."""
    assert str(inspect.signature(getattr(interop_demo, function))) == signature


def test_the_stream_is_a_keyword():
    for function in (describe, interop_demo.asarray):
        with pytest.raises(TypeError):
            function(np.ones(3), None)
        assert function(obj=np.ones(3), stream=None) is not None


def test_half_a_producer():
    """R119: a missing method is an AttributeError, as the standard says."""

    class Half:
        def __dlpack__(self, **wishes):
            return Tensor().capsule()

    with pytest.raises(AttributeError, match="__dlpack_device__"):
        describe(Half())


NOTHING = {
    "none": None,
    "int": 3,
    "float": 1.5,
    "str": "array",
    "list": [1.0, 2.0],
    "dict": {"shape": (2,)},
    "interface-dict": dict_with(),
    "object": object(),
    "class": Producer,
    "module": interop_demo,
    "array-class": interop_demo.Array,
    "numpy-class": np.ndarray,
    "dtype": np.dtype("f4"),
    "device-only": type("D", (), {"__dlpack_device__": lambda self: (1, 0)})(),
    "module-none": type("M", (), {"__module__": None})(),
    "module-raises": type("M", (), {"__module__": property(raising(RuntimeError("no")))})(),
    "weird-name": type("größe \ud800"[:5], (), {})(),
    "dlpack-none": type("O", (), {"__dlpack__": None, "__dlpack_device__": None})(),
    "numpy-interface": type("N", (), {"__array_interface__": np.zeros(2).__array_interface__})(),
}


@pytest.mark.parametrize("value", NOTHING.values(), ids=NOTHING)
def test_no_producer(value):
    """Bug 153, 157: a TypeError from each function, and nothing worse."""
    for consumer in (describe, interop_demo.asarray, interop_demo.checksum, interop_demo.edges):
        with pytest.raises((TypeError, AttributeError)) as caught:
            consumer(value)
        assert not isinstance(caught.value, ArrayError)
    with pytest.raises((TypeError, AttributeError)):
        interop_demo.scale_(value, 1.0)


def test_the_message_names_class_and_protocols():
    with pytest.raises(TypeError, match="list.*__dlpack__.*__cuda_array_interface__"):
        describe([1.0])


# Devices (R117, R118)


@pytest.mark.parametrize(
    "device", [(Device.CPU, 0), (1, 3), (np.int64(1), np.int32(0)), (Device.CPU, Device.CPU), (Word.CPU, 0)], ids=repr
)
def test_spellings_of_the_device(device):
    assert describe(Producer(Tensor(), device))["device"] == (1, 0)


@pytest.mark.parametrize("kind", [Device.CPU, Word.CPU, CPU, CUDA_HOST, CUDA_MANAGED], ids=repr)
def test_memory_of_the_host_has_no_ordinal(kind):
    """PaddlePaddle's tensors return `(kDLCPU, None)` and `(kDLCUDAHost, None)`."""
    producer = Producer(Tensor(), (kind, None))
    assert describe(producer)["device"] == (1, 0)
    assert len(producer.asked) == 1


@pytest.mark.parametrize(
    "device",
    [
        None, 1, "cpu", (), (1,), (1, 0, 0), [1, 0], (1.0, 0), ("cpu", 0), (None, 0), (True, 0), (1, False),
        (CUDA, None), (ROCM, None), (None, None), {1: 0}, (Word.NAMED, 0), (Word, 0),
    ],
    ids=repr,
)
def test_bad_devices(device):
    producer = Producer(Tensor(), device)
    producer.device = device
    with pytest.raises(TypeError, match=r"__dlpack_device__.* \(from .*Producer\)$"):
        describe(producer)
    assert producer.asked == []


@pytest.mark.parametrize(
    "device", [(0, 0), (ROCM, 0), (77, 0), (-1, 0), (2, -1), (2**31, 0), (2**200, 0), (1, 2**40)], ids=repr
)
def test_devices_that_are_of_no_use(device):
    """Refused before a capsule is requested, because other devices have other stream rules."""
    producer = Producer(Tensor(), device)
    with pytest.raises(ArrayError, match=r"device.* \(from .*Producer\)$"):
        describe(producer)
    assert producer.asked == []


HOST = (CPU, CUDA_HOST, CUDA_MANAGED)


@pytest.mark.parametrize("said", [(CPU, 0), (CUDA, 0), (CUDA, 1), (CUDA_HOST, 0), (CUDA_MANAGED, 2)], ids=repr)
@pytest.mark.parametrize(
    "found", [(CPU, 0), (CPU, 1), (CUDA, 0), (CUDA, 1), (CUDA_HOST, 0), (CUDA_MANAGED, 0)], ids=repr
)
def test_two_statements_about_the_device(said, found):
    """R118: PyTorch labels pinned memory inconsistently, so all host-accessible memory counts as one device."""
    tensor = Tensor(device=found)
    producer = Producer(tensor, said)
    if said == found or (said[0] in HOST and found[0] in HOST):
        assert describe(producer)["device"] == (found[0], found[1] if found[0] == CUDA else 0)
    else:
        with pytest.raises(ArrayError, match="__dlpack_device__"):
            describe(producer)
    assert tensor.released == 1


# Objects that change while they are read


class Index:
    """An index with a side effect."""

    def __init__(self, number, action):
        self.number, self.action = number, action

    def __index__(self):
        self.action()
        return self.number


def test_lists_that_shrink_while_they_are_read():
    numbers = [4, 4, 4]
    numbers[0] = Index(4, numbers.clear)
    assert interop_demo.parse_cai(dict_with(shape=numbers))["shape"] == (4,)
    numbers[:] = [Index(12, numbers.clear), 4]
    with pytest.raises(ArrayError, match="`strides`: found 1"):
        interop_demo.parse_cai(dict_with(strides=numbers))
    descr = [("x", "<f4"), ("y", "<f4")]
    descr[0] = ("x", "<f4", Index(1, descr.clear))
    with pytest.raises(ArrayError, match="`descr`: found fields of 4 bytes"):
        interop_demo.parse_cai(dict_with(typestr="|V8", descr=descr))


def test_tuples_that_iterate_as_they_like():
    """The items of the tuple count, or it is refused; an endless iterator is never followed."""

    class Endless(tuple):
        def __iter__(self):
            return itertools.repeat(1)

        def __len__(self):
            return 2**62

    for key in ("shape", "strides"):
        try:
            facts = interop_demo.parse_cai(dict_with(**{key: Endless((4, 4) if key == "strides" else (2, 3))}))
        except (ArrayError, TypeError) as error:
            assert key in str(error)
        else:
            assert facts["shape"] == (2, 3)


def test_a_dict_that_changes_while_it_is_read():
    """All values are read before the first is converted, which can run code."""
    for kind in (dict, collections.UserDict):
        changing = kind(DICT)
        changing["shape"] = (Index(2, lambda changing=changing: changing.pop("data", None)), 3)
        facts = interop_demo.parse_cai(changing)
        assert (facts["shape"], facts["data"]) == ((2, 3), DICT["data"][0])
        with pytest.raises(ArrayError, match="`data`"):
            interop_demo.parse_cai(changing)


def test_keys_that_are_equal_and_not_the_same():
    """A program that creates its keys at run time does not use the interned strings."""

    class Key(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            return str.__eq__(self, other)

    for fresh in (lambda key: "".join(list(key)), Key):
        dressed = {"_": None, **{fresh(key): value for key, value in DICT.items()}, fresh("stream"): 7}
        facts = interop_demo.parse_cai(dressed)
        assert (facts["shape"], facts["data"], facts["stream"]) == (DICT["shape"], DICT["data"][0], 7)


def test_an_import_within_an_import():
    """A producer that uses the library while it is asked."""

    class Nested(Producer):
        def __dlpack__(self, **wishes):
            inner = Tensor()
            assert describe(Producer(inner))["shape"] == (2, 3)
            assert interop_demo.checksum(np.from_dlpack(interop_demo.Array.full((2,), 1.0))) == 2
            assert inner.released == 1
            return super().__dlpack__(**wishes)

        def __dlpack_device__(self):
            describe(np.ones(3))
            return super().__dlpack_device__()

    tensor = Tensor()
    assert describe(Nested(tensor))["data"] == tensor.memory
    assert tensor.released == 1


def test_recursion_without_end():
    class Itself:
        @property
        def __dlpack__(self):
            return describe(self)

    # Frames of an unoptimised extension are large: not a thousand of them fit on the stack.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        with pytest.raises(RecursionError):
            describe(Itself())
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("device", ["cuda", "pinned", "managed"])
def test_memory_of_a_gpu_that_may_not_be_there(device):
    """An array, or an error that says what is missing; in both cases the next call works."""
    try:
        array = interop_demo.Array.full((2, 3), 1.0, device=device)
    except (BufferError, RuntimeError) as error:
        assert device in str(error) or "driver" in str(error) or "CUDA" in str(error)
    else:
        assert describe(array)["shape"] == (2, 3)
    assert interop_demo.checksum(interop_demo.Array.full((2, 3), 1.0)) == 6


class Plain: ...


class Slotted:
    __slots__ = ("x",)


def test_a_class_of_rust_may_lack_the_word():
    """Such a class looks like any other compiled class, so the hint also appears for those; Python classes do not get
    it.
    """
    with pytest.raises(TypeError, match=r"found interop_demo.HoldReleases, .* add `#\[cuda_array\(pyclass\)\]`$"):
        describe(interop_demo.HoldReleases())
    for other in [Plain(), Slotted(), 3, "text", re.compile("x"), dict, enum.IntEnum, Device.CPU, describe]:
        with pytest.raises(TypeError, match="or a buffer$"):
            describe(other)


def test_a_class_that_looks_compiled_and_holds_elements():
    """Like those of TensorStore and arro3, which do not need the hint about Rust classes."""

    class Compiled:
        __slots__ = ()

    del Compiled.__slots__
    with pytest.raises(TypeError, match=r"`#\[cuda_array\(pyclass\)\]`$"):
        describe(Compiled())
    Compiled.__array__ = lambda self, dtype=None, copy=None: np.ones(2)
    assert describe(np.asarray(Compiled()))["shape"] == (2,)
    with pytest.raises(TypeError, match="convert it by `numpy.asarray`$"):
        describe(Compiled())


class Series:
    """Like those of pandas: NumPy calls it for an array."""

    def __array__(self, dtype=None, copy=None):
        return np.ones(2)


class Picture:
    """Like those of Pillow."""

    __array_interface__ = np.ones(2).__array_interface__


def test_what_numpy_makes_an_array_of():
    """The message says so, and it works."""
    for other in [[1.0], (1.0,), Series(), Picture()]:
        assert describe(np.asarray(other))
        with pytest.raises(TypeError, match="convert it by `numpy.asarray`$"):
            describe(other)


def test_none_in_the_place_of_a_method():
    """`None` means that there is no method, as for all special methods; the object's other protocols are used."""
    for nothing in (None, property(lambda self: None)):
        with pytest.raises(TypeError, match="convert it by `numpy.asarray`$"):
            describe(type("Series", (Picture,), {"__dlpack__": nothing})())
    disowned = type("Odd", (Producer,), {"__cuda_array_interface__": dict_with(shape=(0,))})(Tensor())
    assert describe(disowned)["protocol"] == "dlpack_versioned"
    disowned.__dlpack__ = None
    assert describe(disowned)["protocol"] == "cai"


def test_a_property_that_raises_keeps_its_error():
    """After a TypeError the attribute is looked up again, and an error of that lookup is not reported."""

    def method(_):
        raise TypeError("unexpected keyword argument 'max_version'")

    with pytest.raises(TypeError, match="unexpected") as caught:
        describe(type("Fussy", (Picture,), {"__dlpack__": property(method)})())
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_class_that_does_not_say_what_it_has():
    """It is inspected only for an error message."""
    meta = type("Meta", (type,), {"__getattribute__": raising(RuntimeError("no"))})
    with pytest.raises(TypeError, match="allowed: an object with `__dlpack__`, `__cuda_array_interface__` or a buffer$"):
        describe(meta("Mute", (), {})())


def test_a_capsule_is_not_the_array():
    with pytest.raises(TypeError, match="PyCapsule, .*; pass the array instead of its capsule"):
        interop_demo.is_square(np.ones((2, 2), "f4").__dlpack__())


@pytest.mark.parametrize("name", ["__dlpack__", "__cuda_array_interface__", "__array_interface__", "is_conj", "mask"])
def test_a_lack_of_memory_is_passed_on(name):
    """It says nothing about the object, so no other protocol is tried."""

    class Meta(type):
        def __getattr__(cls, asked):
            raise MemoryError(asked) if asked == name else AttributeError(asked)

    with pytest.raises(MemoryError, match=name):
        describe(Meta("Short", (), {})())


@pytest.mark.parametrize("kind", [np.ndarray, interop_demo.Array, Producer], ids=lambda kind: kind.__name__)
def test_a_class_in_place_of_its_object_is_named(kind):
    """Its methods have no object, of which NumPy says `unbound method ndarray.__dlpack_device__() needs an argument`."""
    with pytest.raises(TypeError, match=f"^`array`: found the class .*{kind.__name__}, allowed: an object of it$"):
        interop_demo.describe(kind)
