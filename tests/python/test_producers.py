"""How producers are asked: streams, old signatures, unusual callables (R113, R116, R129, R142, R156).

Their errors are in test_producers_errors.py, other kinds of objects in test_import_objects.py.
"""

import functools

import interop_demo
import numpy as np
import pytest
from capsules import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Producer, Tensor, producer_with, raising
from scripts import needs_proc, run

ArrayError = interop_demo.ArrayError
describe = interop_demo.describe


def test_strides_that_lost_their_sign():
    """CuPy divides negative strides in bytes as if they were unsigned: the message suggests a remedy."""
    strides = [(2**64 - step) // 4 for step in (16, 8)]
    with pytest.raises(ArrayError, match="offsets that fit the address space; CuPy writes negative strides.*pass `cupy.ascontiguousarray"):
        describe(Producer(Tensor(strides=strides)))


# The arguments (R113, R129, R142, bugs 4, 7, 9)


@pytest.mark.parametrize("stream", [None, -1, 1, 2, 0x7F00_1234_5670], ids=repr)
def test_a_cpu_producer_is_asked_for_a_version_and_nothing_else(stream):
    producer = Producer(Tensor())
    assert describe(producer, stream=stream)["stream"] is None
    assert producer.asked == [{"max_version": (1, 3)}]
    version = producer.asked[0]["max_version"]
    assert type(version) is tuple
    assert [type(number) for number in version] == [int, int]


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize(
    ("stream", "passed", "known"),
    [
        (None, 1, 1), (-1, -1, None), (1, 1, 1), (2, 2, 2), (0x7F00_1234_5670,) * 3, (np.int64(2), 2, 2),
        (2**63 + 8,) * 3, (2**64 - 1,) * 3,
    ],
    ids=repr,
)
def test_a_cuda_producer_is_told_the_stream(kind, stream, passed, known):
    """R141, R144: always, as an exact int; None is the legacy default stream, never 0."""
    tensor = Tensor(device=(kind, 0))
    producer = Producer(tensor)
    assert describe(producer, stream=stream)["stream"] == known
    assert producer.asked == [{"stream": passed, "max_version": (1, 3)}]
    assert type(producer.asked[0]["stream"]) is int
    assert tensor.released == 1


class Stream:
    """A stream of another library."""

    def __init__(self, *answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


@pytest.mark.parametrize(("handle", "passed"), [(0, 1), (1, 1), (2, 2), (0x7F00_1234_5670, 0x7F00_1234_5670)])
def test_stream_objects(handle, passed):
    """R156, R169: a null handle is the legacy default stream, and never passed on as 0."""
    producer = Producer(Tensor(device=(CUDA, 0)))
    assert describe(producer, stream=Stream(0, handle))["stream"] == passed
    assert producer.asked[0]["stream"] == passed
    assert describe(Producer(Tensor()), stream=Stream(0, handle))["stream"] is None


@pytest.mark.parametrize(("handle", "stated"), [(0, 1), (1, 1), (2, 2), (0x7F00_1234_5670, 0x7F00_1234_5670)])
def test_a_stream_that_we_hand_out_is_a_stream_object(handle, stated):
    """R156: other libraries take it as theirs, and so do we. Where nothing is pending there is no stream."""
    stream = interop_demo.asarray(Producer(Tensor(device=(CUDA, 0))), stream=Stream(0, handle)).stream
    assert stream.__cuda_stream__() == (0, stated)
    assert describe(Producer(Tensor(device=(CUDA, 0))), stream=stream)["stream"] == stated
    assert interop_demo.Array.full(1, 0).stream is None


class StreamWithProperty:
    """Like `cuda.core` before 0.2."""

    @property
    def __cuda_stream__(self):
        return 0, 7


def test_a_stream_object_with_a_property():
    """R156: the protocol's form before the method."""
    assert describe(Producer(Tensor(device=(CUDA, 0))), stream=StreamWithProperty())["stream"] == 7


class RaisingStream:
    def __cuda_stream__(self):
        raise RuntimeError("from the stream")


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (0, ArrayError), (-2, ArrayError), (2**64, ArrayError), (2**200, ArrayError), (True, TypeError),
        (False, TypeError), (1.0, TypeError), ("1", TypeError), ((), TypeError), (object(), TypeError),
        (Stream(1, 7), ArrayError), (Stream(), TypeError), (Stream(0), TypeError), (Stream(0, 1, 2), TypeError),
        (Stream("0", 7), TypeError), (Stream(0, None), TypeError), (Stream(False, 7), TypeError),
        (Stream(0, -1), ArrayError), (Stream(0, 2**64), ArrayError), (Stream(2**200, 7), ArrayError),
        (Stream(0, 1.0), TypeError), (RaisingStream(), RuntimeError),
    ],
    ids=lambda value: getattr(value, "answer", None) and repr(value.answer),
)
@pytest.mark.parametrize("kind", [CPU, CUDA])
def test_bad_streams(stream, error, kind):
    """Refused before the producer is asked, on any device."""
    for consumer in (describe, interop_demo.asarray):
        producer = Producer(Tensor(device=(kind, 0)))
        with pytest.raises(error):
            consumer(producer, stream=stream)
        assert producer.asked == []


@pytest.mark.parametrize("stream", ["1", 1.0, True, pytest.param(object(), id="object")], ids=repr)
def test_what_a_stream_may_be_is_told(stream):
    with pytest.raises(TypeError, match="`stream`: found .*, allowed: an int, or an object with `__cuda_stream__`$"):
        describe(Producer(Tensor()), stream=stream)


def test_the_number_of_a_default_stream_is_told():
    """PyTorch's `stream.cuda_stream` is 0 for its default stream."""
    with pytest.raises(BufferError, match="pass 1 for the default stream, or the stream object itself"):
        describe(Producer(Tensor()), stream=0)


@pytest.mark.parametrize("answer", [(), (0,), (0, 1, 2)])
def test_a_tuple_of_another_length_is_told_its_length(answer):
    """Otherwise the message would say that a tuple was found where a tuple is allowed."""
    found = f"found tuple of length {len(answer)}, allowed: a tuple"
    with pytest.raises(TypeError, match=f"^`__cuda_stream__`: {found}"):
        describe(Producer(Tensor()), stream=Stream(*answer))
    with pytest.raises(TypeError, match=f"^`max_version`: {found}"):
        interop_demo.Array.full(1, 0).__dlpack__(max_version=answer)
    with pytest.raises(TypeError, match=f"^`data`: {found}"):
        interop_demo.parse_cai({"shape": (1,), "typestr": "<f4", "data": answer, "version": 3})
    descr = [answer[:1]]
    with pytest.raises(TypeError, match=f"^`descr`: found tuple of length {len(descr[0])}, allowed: a list of tuples"):
        interop_demo.parse_cai({"shape": (1,), "typestr": "<f4", "data": (8, False), "version": 3, "descr": descr})


# Old producers (R113, R114, R116)


def stream_only(self, stream=None):
    self.asked.append({} if stream is None else {"stream": stream})
    return self.tensor.capsule()


def keyword_stream_only(self, *, stream=None):
    return stream_only(self, stream)


def nothing(self):
    return stream_only(self)


def cython(self, **wishes):
    """The error messages of Cython and pybind11."""
    if wishes:
        raise TypeError(
            "__dlpack__(): incompatible function arguments. The following argument types are supported: ..."
        )
    return stream_only(self)


OLD = [stream_only, keyword_stream_only, nothing, cython]


@pytest.mark.parametrize("method", OLD)
@pytest.mark.parametrize("form", ["legacy", "versioned"])
def test_old_signatures(method, form):
    producer = type("Old", (Producer,), {"__dlpack__": method})(Tensor(form))
    assert describe(producer)["protocol"] == {"legacy": "dlpack", "versioned": "dlpack_versioned"}[form]
    assert producer.asked == [{}]
    assert producer.tensor.released == 1


@pytest.mark.parametrize("method", OLD[:2])
@pytest.mark.parametrize("stream", [None, 7])
def test_old_signatures_are_told_the_stream(method, stream):
    """`stream` is left out last, and never on CUDA."""
    producer = type("Old", (Producer,), {"__dlpack__": method})(Tensor("legacy", device=(CUDA, 0)))
    assert describe(producer, stream=stream)["stream"] == (stream or 1)
    assert producer.asked == [{"stream": stream or 1}]


@pytest.mark.parametrize(
    "make",
    [
        lambda capsule: staticmethod(lambda stream=None: capsule),
        lambda capsule: staticmethod(lambda: capsule),
        lambda capsule: staticmethod(functools.partial(lambda capsule, **wishes: capsule, capsule)),
        lambda capsule: property(lambda self: lambda max_version=None: capsule),
        lambda capsule: classmethod(lambda cls, *, max_version, stream=None: capsule),
    ],
    ids=["stream", "nothing", "partial", "property", "classmethod"],
)
def test_other_callables(make):
    tensor = Tensor("legacy")
    assert describe(producer_with(__dlpack__=make(tensor.capsule())))["data"] == tensor.memory
    assert tensor.released == 1


def test_methods_of_the_instance():
    """A forwarding object, such as a proxy."""

    class Proxy:
        def __init__(self, target):
            self.target = target

        def __getattr__(self, name):
            return getattr(self.target, name)

    tensor = Tensor()
    assert describe(Proxy(Producer(tensor)))["data"] == tensor.memory
    assert tensor.released == 1


@pytest.mark.parametrize("slots", [(), ("__dict__",)], ids=["slots", "dict"])
def test_a_method_that_comes_later(slots):
    """A class can change after its objects were seen, also one that inherits the method from NumPy."""
    array = np.zeros((2, 3)).view(type("Derived", (np.ndarray,), {"__slots__": slots}))
    assert describe(array)["shape"] == (2, 3)
    tensor = Tensor()
    type(array).__dlpack__ = lambda self, max_version: tensor.capsule()
    assert describe(array)["data"] == tensor.memory
    assert tensor.released == 1


@pytest.mark.parametrize("lose", ["by its class", "by itself"])
def test_a_method_that_goes_again(lose):
    """Also a class whose arrays are in host memory and are therefore asked for a capsule only."""
    interface = {"shape": (2,), "typestr": "<f4", "data": (0x1000, False), "version": 3}

    class Losing(Producer):
        __array_interface__ = np.zeros(2).__array_interface__
        __dlpack__ = Producer.__dlpack__
        hides = False

        def __getattribute__(self, name):
            if name == "__dlpack__" and object.__getattribute__(self, "hides"):
                raise AttributeError(name)
            return object.__getattribute__(self, name)

    producer = Losing(Tensor())
    assert describe(producer)["protocol"] == "dlpack_versioned"
    if lose == "by itself":
        producer.hides = True
    else:
        Losing.__dlpack__ = property(raising(AttributeError("none")))
    with pytest.raises(TypeError, match="allowed: an object with `__dlpack__`"):
        describe(producer)
    Losing.__cuda_array_interface__ = interface
    with pytest.raises(ArrayError, match="driver"):
        describe(producer)


@pytest.mark.parametrize("error", [KeyError, RuntimeError, AttributeError])
def test_a_metaclass_that_raises(error):
    """Its objects are asked anyway: the lookup on the class only saves calls."""

    class Meta(type):
        def __getattr__(cls, name):
            raise error(name)

    producer = Meta("Odd", (Producer,), {})(Tensor())
    assert describe(producer)["protocol"] == "dlpack_versioned"


def test_an_interrupt_in_a_metaclass():
    class Meta(type):
        def __getattr__(cls, name):
            raise KeyboardInterrupt

    producer = Meta("Odd", (Producer,), {})(Tensor())
    with pytest.raises(KeyboardInterrupt):
        describe(producer)
    assert producer.asked == []


def test_types_are_remembered_however_many_there_were():
    """A program may make a class for each array; the latest is remembered as the first was."""
    run(
        """
        import interop_demo
        import numpy as np

        array = np.zeros((2, 2), "f4")

        class Base:
            def __dlpack__(self, **wishes):
                return array.__dlpack__(**wishes)

            def __dlpack_device__(self):
                return 1, 0

        asked = []

        class Meta(type):
            def __getattribute__(cls, name):
                if name == "__dlpack_c_exchange_api__":
                    asked.append(cls)
                return super().__getattribute__(name)

        kept = []
        for number in range(3 * 4096):
            Class = Meta(f"Class{number}", (Base,), {})
            kept += [Class] if number < 5000 else []
            for _ in range(2):
                interop_demo.is_square(Class())
            assert asked == [Class], number
            asked.clear()
        """,
        timeout=120,
    )


@needs_proc
def test_types_that_are_gone_are_forgotten():
    run(
        """
        import gc
        import interop_demo
        import numpy as np
        from scripts import resident

        array = np.zeros((2, 2), "f4")

        class Base:
            def __dlpack__(self, **wishes):
                return array.__dlpack__(**wishes)

            def __dlpack_device__(self):
                return 1, 0

        def import_from(count):
            for number in range(count):
                interop_demo.is_square(type("Class", (Base,), {})())
                if number % 256 == 0:
                    gc.collect()

        import_from(8192)
        gc.collect()
        before = resident()
        import_from(16384)
        gc.collect()
        assert resident() - before < 2**20, resident() - before
        """,
        timeout=120,
    )
