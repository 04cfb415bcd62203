"""Interface dicts on the simulated driver: of memory with different addresses on host and device, and next to
unusable capsules.
"""

import ctypes

import interop_demo
import numpy as np
import pytest
from capsules import CUDA, Producer, Tensor, raising
from test_cuda_arrays import SIM, full, nothing_wrong, on_host, pytestmark  # noqa: F401
from test_exchange import in_capsule, table


@pytest.fixture
def registered():
    """Registered host memory and its device address, which is different."""
    memory = np.arange(4, dtype="<f4")
    first, on_devices = ctypes.c_uint64(memory.ctypes.data), ctypes.c_uint64()
    SIM.library.simulated_cuda_set_registered_apart(1)
    SIM.call("cuMemHostRegister_v2", first, ctypes.c_size_t(memory.nbytes), 0)
    SIM.library.simulated_cuda_set_registered_apart(0)
    SIM.call("cuMemHostGetDevicePointer_v2", ctypes.byref(on_devices), first, 0)
    assert on_devices.value != first.value
    yield memory, on_devices.value
    SIM.call("cuMemHostUnregister", first)


class ByInterface:
    """This many `float32` at an address."""

    def __init__(self, address, count):
        interface = {"shape": (count,), "typestr": "<f4", "data": (address, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = interface


def test_a_dict_has_the_address_that_kernels_use(registered):
    """R35: through whichever of its two addresses pinned memory was imported."""
    memory, on_devices = registered
    for address in (memory.ctypes.data, on_devices):
        array = interop_demo.asarray(ByInterface(address, 4))
        assert interop_demo.describe(array)["data"] == memory.ctypes.data
        assert array.__cuda_array_interface__["data"] == (on_devices, False)
        assert array[::-1].__cuda_array_interface__["data"] == (on_devices + 12, False)
        assert np.shares_memory(on_host(array), memory)


def test_memory_that_no_kernel_reaches_has_no_dict(registered):
    array = interop_demo.asarray(ByInterface(registered[1], 4))
    SIM.library.simulated_cuda_fail_next(b"cuPointerGetAttribute", 1)
    assert not hasattr(array, "__cuda_array_interface__")
    SIM.library.simulated_cuda_fail_next(b"cuPointerGetAttribute", 1)
    with pytest.raises(AttributeError, match="__cuda_array_interface__: `data`: .* has no access"):
        array.__cuda_array_interface__  # noqa: B018
    assert hasattr(array, "__cuda_array_interface__")


class Backwards(Producer):
    """An array with negative strides, as in CuPy: in the capsule the strides have lost their sign, in the dict they
    are right.
    """

    __module__ = "cupy"

    def __init__(self, **differing):
        self.array = full("cuda")[::-1, ::-2]
        interface = self.array.__cuda_array_interface__
        strides = [(2**64 + step) // 4 for step in interface["strides"]]
        tensor = {"data": interface["data"][0], "shape": interface["shape"], "strides": strides, **differing}
        super().__init__(Tensor(device=(CUDA, 0), **tensor))

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


@pytest.mark.parametrize("stream", [None, 2], ids=repr)
def test_what_a_capsule_cannot_say_comes_by_the_dict(stream):
    producer = Backwards()
    expected = interop_demo.describe(producer.array)
    found = interop_demo.describe(producer, stream=stream)
    assert (found["protocol"], found["strides"], found["stream"]) == ("cai", (-4, -2), stream or 1)
    assert found["data"] == expected["data"]
    assert producer.tensor.released == 1


def test_as_an_argument_too():
    """Also after arrays of the class have come through capsules from a GPU, so that their device is no longer
    requested.
    """
    forwards = Backwards(strides=(0, 0))
    assert [interop_demo.describe(forwards)["protocol"] for _ in range(3)] == ["dlpack_versioned"] * 3
    producer = Backwards()
    producer.device = None
    assert interop_demo.checksum(producer) == interop_demo.checksum(producer.array)
    assert (producer.tensor.released, len(producer.asked)) == (1, 1)


def test_from_the_exchange_table_too():
    members = {"__dlpack_c_exchange_api__": in_capsule(table()), "fails": False, "fast": property(lambda self: self.tensor)}
    producer = type("Fast", (Backwards,), members)()
    assert interop_demo.describe(producer)["protocol"] == "cai"
    assert (producer.tensor.released, producer.asked) == (1, ["table"])


def raises(kind):
    """A member that raises a new exception each time: a cached one would keep the array alive through its traceback."""
    return lambda self: raising(kind("not now"))(self)


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (lambda self: {**self.array.__cuda_array_interface__, "strides": (1,)}, "1 stride"),
        (lambda self: {**self.array.__cuda_array_interface__, "data": (0x10000, False)}, "does not know"),
    ],
    ids=["strides", "address"],
)
def test_an_invalid_dict_is_refused_because_of_the_capsule(member, why):
    """The error of the capsule is the cause."""
    producer = type("Odd", (Backwards,), {"__cuda_array_interface__": property(member)})()
    with pytest.raises(interop_demo.ArrayError, match=why) as raised:
        interop_demo.asarray(producer)
    assert "offsets that fit the address space" in str(raised.value.__cause__)
    assert producer.tensor.released == 1


@pytest.mark.parametrize(
    ("member", "why"),
    [(raises(RuntimeError), "not now"), (raises(AttributeError), "None"), (lambda self: None, "a dict")],
    ids=["raises", "absent", "none"],
)
def test_the_capsule_is_refused_where_there_is_no_dict(member, why):
    """The exception of the property is the cause."""
    producer = type("Odd", (Backwards,), {"__cuda_array_interface__": property(member)})()
    with pytest.raises(interop_demo.ArrayError, match="offsets that fit the address space") as raised:
        interop_demo.asarray(producer)
    assert why in str(raised.value.__cause__)
    assert producer.tensor.released == 1


def test_an_interrupt_of_the_dict_is_not_swallowed():
    producer = type("Odd", (Backwards,), {"__cuda_array_interface__": property(raising(KeyboardInterrupt()))})()
    with pytest.raises(KeyboardInterrupt):
        interop_demo.asarray(producer)
    assert producer.tensor.released == 1


@pytest.mark.parametrize(
    ("differing", "place"),
    [({}, "strides"), ({"dtype": (2, 7, 1)}, "dtype"), ({"shape": (2**40, 2**40)}, "shape")],
    ids=["strides", "dtype", "shape"],
)
def test_an_invalid_capsule_of_another_library_is_refused(differing, place):
    """A dict says less than a capsule. Only CuPy is known to write it right where its capsule is wrong."""
    producer = type("Other", (Producer,), {"__cuda_array_interface__": Backwards.__cuda_array_interface__})
    own = Backwards(**differing)
    other = producer(own.tensor)
    other.array = own.array
    with pytest.raises(interop_demo.ArrayError, match=f"^`{place}`"):
        interop_demo.asarray(other)
    assert own.tensor.released == 1
