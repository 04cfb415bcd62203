"""Imports through the C exchange table of a type, made here of ctypes functions (R158 to R171, bugs 159, 163)."""

import ctypes
import sys
import types

import interop_demo
import native
import numpy as np
import pytest
from capsules import CUDA, READ_ONLY, VERSION, Producer, Table, Tensor, new_capsule
from scripts import run

ArrayError = interop_demo.ArrayError
NAME = b"dlpack_exchange_api"
FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


# A table lives as long as the program.
kept = []


def table(major=1, minor=3, previous=0, from_object=True):
    """Creates a table for `Fast` and returns its address."""
    function = ctypes.cast(hand_over, ctypes.c_void_p).value if from_object else None
    kept.append(Table(major, minor, previous, None, function, None, None, None))
    return ctypes.addressof(kept[-1])


def in_capsule(address, name=NAME):
    return new_capsule(address, ctypes.cast(name, ctypes.c_void_p), None)


@FROM_OBJECT
def hand_over(address, out):
    """`managed_tensor_from_py_object_no_sync`."""
    producer = ctypes.cast(address, ctypes.py_object).value
    producer.asked.append("table")
    if producer.fails:
        return -1
    out[0] = producer.fast.address if producer.fast else None
    return 0


class Fast(Producer):
    """A producer that may have a table; it records how it was asked."""

    fails = False

    def __init__(self, fast=None, tensor=None, **members):
        super().__init__(tensor or Tensor())
        self.fast = fast
        self.__class__ = type("Fast", (type(self),), members)


def make(fast=None, value=None, name="__dlpack_c_exchange_api__", **fields):
    """A producer whose type has a table."""
    return Fast(fast or Tensor(**fields), **{name: value if value is not None else in_capsule(table())})


def raising(name):
    """A table whose function sets the exception of this function of C and returns 0."""
    kept.append(Table(1, 3, 0, None, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value, None, None, None))
    return in_capsule(ctypes.addressof(kept[-1]))


@pytest.mark.parametrize(("function", "exception"), [("PyErr_BadArgument", TypeError), ("PyErr_BadInternalCall", SystemError)])
def test_a_table_that_raises_is_followed_by_the_method(function, exception):
    """PyTorch's table refuses a meta, sparse or quantized tensor with a backtrace of C++, its method in one sentence."""
    members = {"__dlpack_c_exchange_api__": raising(function)}
    accepted = Fast(Tensor(), **members)
    assert interop_demo.describe(accepted)["protocol"] == "dlpack_versioned"
    assert accepted.asked == [{"max_version": VERSION}]

    def no_storage(self, **keywords):
        raise BufferError("Cannot export a tensor without storage")

    with pytest.raises(BufferError, match="^Cannot export a tensor without storage$"):
        interop_demo.describe(Fast(Tensor(), __dlpack__=no_storage, **members))
    # Without a method, the exception of the table is the only reason.
    with pytest.raises(exception):
        interop_demo.describe(type("Table", (), members)())


@pytest.mark.parametrize("name", ["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"])
def test_both_names(name):
    """R159: some libraries also put a capsule under the name from version 1.2."""
    producer = make(name=name)
    facts = interop_demo.describe(producer)
    assert facts["protocol"] == "exchange"
    assert facts["data"] == producer.fast.memory
    assert producer.asked == ["table"]
    assert (producer.fast.released, producer.tensor.released) == (1, 0)


def test_the_facts_of_a_table():
    tensor = Tensor(shape=(4, 5), strides=(1, 4), dtype=(4, 16, 1), flags=READ_ONLY, byte_offset=8)
    assert interop_demo.describe(make(tensor)) == {
        "protocol": "exchange",
        "device": (1, 0),
        "dtype": "bfloat16",
        "shape": (4, 5),
        "strides": (1, 4),
        "readonly": True,
        "data": tensor.memory + 8,
        "nbytes": 40,
        "stream": None,
    }
    assert tensor.released == 1


def test_every_function_imports_by_the_table():
    producer = make()
    producer.fast.floats(6)[:] = range(6)
    assert interop_demo.checksum(producer) == 15
    interop_demo.scale_(make(producer.fast), 2)
    assert list(producer.fast.floats(6)) == [0, 2, 4, 6, 8, 10]
    array = interop_demo.asarray(make(producer.fast))
    assert producer.fast.released == 2
    assert np.from_dlpack(array).tolist() == [[0, 2, 4], [6, 8, 10]]
    del array
    assert producer.fast.released == 3


def test_subclasses_have_the_table_as_well():
    base = type("Base", (Fast,), {"__dlpack_c_exchange_api__": in_capsule(table())})
    producer = type("Derived", (base,), {})(Tensor())
    assert interop_demo.describe(producer)["protocol"] == "exchange"


def test_a_subclass_with_a_method_of_its_own_is_asked_by_it():
    """Its method may return something else or refuse; the inherited table ignores that."""
    base = type("Base", (Fast,), {"__dlpack_c_exchange_api__": in_capsule(table())})
    own = Tensor(shape=(5,))
    between = type("Between", (base,), {})
    derived = type("Derived", (between,), {"__dlpack__": lambda self, **_: own.capsule()})
    assert interop_demo.describe(derived(Tensor()))["shape"] == (5,)
    below = type("Below", (derived,), {})
    assert interop_demo.describe(below(Tensor()))["shape"] == (5,)
    again = type("Again", (derived,), {"__dlpack_c_exchange_api__": in_capsule(table())})
    assert interop_demo.describe(again(Tensor()))["protocol"] == "exchange"
    closed = type("Closed", (base,), {"__dlpack__": None})
    with pytest.raises(TypeError, match="an object with `__dlpack__`, "):
        interop_demo.describe(closed(Tensor()))


def test_a_table_that_a_metaclass_has():
    """The table is in no class of the object, so no subclass can override it."""
    offering = type("Offering", (type,), {"__dlpack_c_exchange_api__": in_capsule(table())})

    class Offered(Fast, metaclass=offering):
        def __init__(self, fast):
            Producer.__init__(self, Tensor())
            self.fast = fast

    assert interop_demo.describe(Offered(Tensor()))["protocol"] == "exchange"


@pytest.mark.parametrize("major", [2, 3, 2**32 - 1])
def test_older_tables_are_looked_for(major):
    """R160: along the chain of `prev_api`."""
    chain = table(major, previous=table(major, previous=table(1, 2)))
    assert interop_demo.describe(make(value=in_capsule(chain)))["protocol"] == "exchange"


@pytest.mark.parametrize(
    "value",
    [
        lambda: in_capsule(table(2)),
        lambda: in_capsule(table(0)),
        lambda: in_capsule(table(2, previous=table(3))),
        lambda: in_capsule(table(from_object=False)),
        lambda: in_capsule(table(), b"dlpack_exchange"),
        lambda: in_capsule(8, b"dltensor"),
        lambda: None,
        lambda: "table",
        lambda: 1.5,
        lambda: True,
        lambda: 0,
        lambda: -1,
        lambda: 8,
        lambda: 0x8000,
        table,
        lambda: table() + 1,
        lambda: 2**64,
        lambda: 2**200,
        lambda: object(),
        lambda: property(lambda self: in_capsule(table())),
    ],
    ids=[
        "major-2", "major-0", "no-major-1", "null-function", "name", "tensor-capsule", "none", "str", "float", "bool",
        "zero", "negative", "small", "below-all-memory", "address", "unaligned", "2**64", "2**200", "object",
        "property",
    ],
)
def test_what_is_no_table_is_ignored(value):
    """R160, R162, bug 159: the object's method is called instead."""
    producer = Fast(Tensor(), __dlpack_c_exchange_api__=value())
    assert interop_demo.describe(producer)["protocol"] == "dlpack_versioned"
    assert producer.asked == [{"max_version": VERSION}]
    assert (producer.fast.released, producer.tensor.released) == (0, 1)


def test_no_int_is_followed():
    """Bug 159: in 1.2 the address was an int, which any class can have; dereferencing it ended the process."""
    run(
        """
        import interop_demo
        from capsules import Producer, Tensor
        for name in ("__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"):
            producer = Producer(Tensor())
            producer.__class__ = type("Odd", (Producer,), {name: 1 << 20})
            assert interop_demo.describe(producer)["protocol"] == "dlpack_versioned"
        """
    )


def test_a_chain_without_end():
    first, second = table(2), table(3)
    kept[-2].previous, kept[-1].previous = second, first
    assert interop_demo.describe(make(value=in_capsule(first)))["protocol"] == "dlpack_versioned"


def test_the_table_of_an_instance_is_none():
    """R159, bug 163: a proxy that forwards attributes does not have the table of the object behind it."""

    class Proxy:
        def __init__(self, target):
            self.target = target

        def __getattr__(self, name):
            return getattr(self.target, name)

    producer = make()
    assert interop_demo.describe(Proxy(producer))["protocol"] == "dlpack_versioned"
    other = Fast(Tensor())
    other.__dlpack_c_exchange_api__ = in_capsule(table())
    assert interop_demo.describe(other)["protocol"] == "dlpack_versioned"


@pytest.mark.parametrize("stream", [None, 7])
def test_memory_of_a_device_goes_by_the_method(stream):
    """A table makes no stream wait: device memory is requested with the stream, and the first tensor is released."""
    fast, tensor = Tensor(device=(CUDA, 0)), Tensor(device=(CUDA, 0))
    producer = Fast(fast, tensor, __dlpack_c_exchange_api__=in_capsule(table()))
    facts = interop_demo.describe(producer, stream=stream)
    assert (facts["protocol"], facts["stream"], facts["data"]) == ("dlpack_versioned", stream or 1, tensor.memory)
    assert producer.asked[-1] == {"stream": stream or 1, "max_version": VERSION}
    assert fast.released == producer.asked.count("table")
    assert tensor.released == 1


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"ndim": -1}, "ndim"), ({"data": 0}, "data"), ({"shape": (2, -3)}, "shape"), ({"dtype": (2, 8, 1)}, "dtype"),
        ({"version": (2, 0)}, "version"), ({"device": (77, 0)}, "device"), ({"strides": (2**62, 1)}, "strides"),
    ],
)
def test_illegal_structs(fields, place):
    """Like in a capsule: refused with the location and the class, and released once."""
    fast = Tensor(**fields)
    with pytest.raises(ArrayError, match=f"`{place}.*Fast"):
        interop_demo.describe(make(fast))
    assert fast.released == 1


COMPLEX, FLOAT, INT = (5, 64, 1), (2, 32, 1), (0, 32, 1)


@pytest.mark.parametrize("function", [interop_demo.asarray, interop_demo.describe, interop_demo.is_square])
@pytest.mark.parametrize(
    ("bit", "remedy", "dtype", "strides"),
    [
        ("is_conj", "resolve_conj", COMPLEX, (3, 1)),
        ("is_neg", "resolve_neg", COMPLEX, (3, 1)),
        ("is_neg", "resolve_neg", FLOAT, (6, 2)),
    ],
)
def test_values_that_are_not_those_in_memory(bit, remedy, dtype, strides, function):
    """PyTorch's table exports lazy conjugates and negatives as the memory behind them."""
    producer = make(Tensor(shape=(3, 3), strides=strides, dtype=dtype))
    no, yes = (lambda self: False), (lambda self: True)
    producer.__class__ = type("Lazy", (type(producer),), {"is_conj": no, "is_neg": no, bit: yes})
    with pytest.raises(ArrayError, match=rf"of the values in memory.*call `{remedy}\(\)` first.*Lazy"):
        function(producer)
    assert (producer.asked, producer.fast.released) == (["table"], 1)
    producer.__class__ = type("Resolved", (type(producer),), {bit: no})
    assert interop_demo.describe(producer)["strides"] == strides


@pytest.mark.parametrize("function", [interop_demo.asarray, interop_demo.describe, interop_demo.is_square])
@pytest.mark.parametrize("form", ["versioned", "legacy"])
def test_negatives_that_a_method_hands_out(form, function):
    """PyTorch's `__dlpack__` refuses lazy conjugates but ignores lazy negatives; older versions have no table."""
    producer = Producer(Tensor(form, shape=(3, 3), strides=(6, 2), dtype=FLOAT))
    bits = {"is_conj": lambda self: False, "is_neg": lambda self: True}
    producer.__class__ = type("Lazy", (Producer,), bits)
    with pytest.raises(ArrayError, match=r"the negatives.*call `resolve_neg\(\)` first.*Lazy"):
        function(producer)
    assert producer.tensor.released == 1


@pytest.mark.parametrize("function", [interop_demo.asarray, interop_demo.describe, interop_demo.is_square])
@pytest.mark.parametrize("has_table", [True, False])
def test_a_tensor_that_requires_a_gradient(monkeypatch, function, has_table):
    """PyTorch's table exports it without a word; it is taken where PyTorch records no gradients."""
    recording = [True]
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(is_grad_enabled=lambda: recording[0]))
    producer = make(Tensor(shape=(3, 3), dtype=FLOAT)) if has_table else Producer(Tensor(shape=(3, 3), dtype=FLOAT))
    members = {"is_conj": lambda self: False, "is_neg": lambda self: False, "requires_grad": True}
    producer.__class__ = type("Torch", (type(producer),), members)
    for _ in range(2):
        with pytest.raises(ArrayError, match=r"requires a gradient.*call `detach\(\)` first.*Torch"):
            function(producer)
    recording[0] = False
    function(producer)
    recording[0] = True
    producer.__class__ = type("Detached", (type(producer),), {"requires_grad": False})
    function(producer)
    # The attribute of another library's class.
    other = Producer(Tensor(shape=(3, 3), dtype=FLOAT))
    other.__class__ = type("Other", (Producer,), {"requires_grad": True})
    function(other)


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "asked"),
    [
        ((3, 1), (1, 1), 0, True), ((), (), 0, True), ((2, 3), (1, 2), 0, True), ((2, 3), (3, 1), 0, False),
        ((2, 3), (3, 1), 4, True), ((2, 3), (3, 1), 8, False),
    ],
)
def test_which_values_may_be_lazy(shape, strides, offset, asked):
    """A lazy imaginary part has strides of 2 or more, or `as_strided` made it: it starts at the second of two numbers. Such arrays
    are queried, and those whose strides cannot show it. Others are not."""
    seen = []
    for dtype in (FLOAT, INT):
        producer = make(Tensor(shape=shape, strides=strides, dtype=dtype, byte_offset=offset))
        bits = {bit: (lambda self, bit=bit: seen.append(bit)) for bit in ("is_conj", "is_neg")}
        producer.__class__ = type("Torch", (type(producer),), bits)
        interop_demo.describe(producer)
    assert seen == (["is_neg"] if asked else [])


def test_a_bit_that_cannot_be_asked_for():
    producer = make(Tensor(shape=(2,), strides=(1,), dtype=COMPLEX))
    producer.__class__ = type("Odd", (type(producer),), {"is_conj": lambda self: 1 / 0})
    with pytest.raises(ZeroDivisionError):
        interop_demo.describe(producer)
    assert producer.fast.released == 1


def test_no_deleter():
    assert interop_demo.describe(make(deleter=False))["protocol"] == "exchange"


def test_failures_without_an_exception():
    """R163: a table that fails without an exception, or reports success without a tensor."""
    for fails, fast in ((True, Tensor()), (False, None)):
        producer = Fast(fast, __dlpack_c_exchange_api__=in_capsule(table()))
        producer.fails = fails
        # A class whose arrays were in host memory is asked in another way.
        for _ in range(3):
            assert interop_demo.describe(producer)["protocol"] == "dlpack_versioned"
            assert interop_demo.is_square(producer) is False


def test_a_stream_that_is_told_with_an_exception():
    """It is ignored: the method is called, and the exception does not surface in another call."""
    fast, tensor = Tensor(device=(CUDA, 0)), Tensor(device=(CUDA, 0))
    raises = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value  # sets a TypeError and returns 0
    address = table()
    kept[-1].stream = raises
    producer = Fast(fast, tensor, __dlpack_c_exchange_api__=in_capsule(address))
    assert interop_demo.describe(producer)["protocol"] == "dlpack_versioned"
    assert (fast.released, tensor.released) == (1, 1)


def test_an_interrupt_while_a_stream_is_told_is_passed_on():
    raising = native.required("raising_table")
    fast = Tensor(device=(CUDA, 0))
    address = table()
    kept[-1].stream = raising.stream
    producer = Fast(fast, __dlpack_c_exchange_api__=in_capsule(address))
    with pytest.raises(KeyboardInterrupt, match="not now"):
        interop_demo.describe(producer)
    assert fast.released == 1


def test_a_table_gives_what_the_type_says_and_no_keywords_matter():
    """Invalid streams are refused before the table is called."""
    for stream in (0, -2, "s"):
        producer = make()
        with pytest.raises((ArrayError, TypeError)):
            interop_demo.describe(producer, stream=stream)
        assert producer.asked == []


def test_ten_thousand_imports_leave_nothing():
    producer = make()
    for _ in range(10_000):
        interop_demo.asarray(producer)
    assert producer.fast.released == 10_000
