"""Arrays that lie about their memory or their stream: an error with the driver's answer, nothing read, nothing lost, and the
process goes on.
"""

import subprocess
import sys

import driver
import interop_demo
import numpy as np
import pytest
from capsules import Tensor

ArrayError = interop_demo.ArrayError
CUDA = (2, 0)


class Interface:
    def __init__(self, address, shape=(4,), **changes):
        interface = {"shape": shape, "typestr": "<f4", "data": (address, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = {**interface, **changes}


class Producer:
    """A capsule that says of an address what it likes."""

    def __init__(self, address, shape=(4,), device=CUDA):
        self.tensor, self.device = Tensor(shape=shape, strides=(1,), data=address, device=device), device

    def __dlpack__(self, **wishes):
        return self.tensor.capsule()

    def __dlpack_device__(self):
        return self.device


SPEAKERS = {"cai": Interface, "dlpack": Producer}
each = pytest.mark.parametrize("protocol", SPEAKERS)


@pytest.fixture
def memory():
    """Two megabytes: the driver's own unit, so that its end is the end of what is mapped."""
    address = driver.alloc(2 << 20)
    yield address
    driver.free(address)


def refused(object, match, **options):
    with pytest.raises(ArrayError, match=match):
        interop_demo.describe(object, **options)
    # The context still works.
    assert interop_demo.checksum(interop_demo.Array.full((8,), 1.0, device="cuda")) == 8
    if isinstance(object, Producer):
        assert object.tensor.released == 1


@each
def test_a_host_pointer(protocol):
    host = np.ones(4, np.float32)
    refused(SPEAKERS[protocol](host.ctypes.data), "driver")


@each
def test_a_freed_pointer(protocol):
    address = driver.alloc(64 << 20)
    driver.free(address)
    refused(SPEAKERS[protocol](address), "driver")


@each
@pytest.mark.parametrize("address", [8, 0xDEAD0000, 0x7FFF_FFFF_0000])
def test_garbage(protocol, address):
    refused(SPEAKERS[protocol](address), "driver")


@each
def test_a_range_past_the_allocation(memory, protocol):
    refused(SPEAKERS[protocol](memory, ((2 << 20) // 4 + 1,)), "allocation")
    assert interop_demo.describe(SPEAKERS[protocol](memory, ((2 << 20) // 4,)))["data"] == memory


def test_a_range_before_the_allocation(memory):
    refused(Interface(memory, (4,), strides=(-4,)), "allocation")


@each
def test_a_pointer_of_another_device(protocol):
    if driver.devices() < 2:
        pytest.skip("there is one GPU; a pointer of another device needs two")
    array = interop_demo.Array.full((4,), 1.0, device="cuda", ordinal=1)
    address = interop_demo.describe(array)["data"]
    if protocol == "cai":
        # The interface names no device, so there is nothing to lie about: the driver says which.
        assert interop_demo.describe(Interface(address))["device"] == (2, 1)
    else:
        refused(Producer(address), "driver")


DESTROYED = """
import ctypes, driver, interop_demo

array = interop_demo.Array.full((4,), 1.0, device="cuda")
address, dead = interop_demo.describe(array)["data"], driver.stream()
driver.call("cuStreamDestroy_v2", ctypes.c_uint64(dead))

class Interface:
    def __init__(self, stream):
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "data": (address, False), "strides": None, "version": 3, "stream": stream
        }

def as_the_producers():
    interop_demo.describe(Interface(dead))

def as_the_consumers():
    interop_demo.describe(Interface(1), stream=dead)

def of_an_export():
    interop_demo.scale_(array, 2.0)
    array.__dlpack__(stream=dead, max_version=(1, 0))

try:
    globals()[NAME]()
except interop_demo.ArrayError as error:
    print("refused:", error, flush=True)
else:
    print("taken", flush=True)
"""


@pytest.mark.parametrize("name", ["as_the_producers", "as_the_consumers", "of_an_export"])
def test_a_destroyed_stream_is_never_taken(name):
    """An error where the driver notices; driver 580 mostly ends the process, whatever is asked of such a handle."""
    program = DESTROYED.replace("NAME", repr(name))
    child = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    if child.returncode == 0:
        assert "refused:" in child.stdout and ("IS_DESTROYED" in child.stdout or "stream" in child.stdout), child.stdout
    else:
        # Not by an exception of Python's, which would be 1.
        assert child.returncode < 0 and "taken" not in child.stdout, (child.returncode, child.stderr)


@each
def test_nothing_is_asked_of_empty_arrays(protocol):
    assert interop_demo.describe(SPEAKERS[protocol](0, (0,)))["nbytes"] == 0


def test_values_of_torch_that_are_not_those_in_memory():
    """Conjugates and negatives are lazy there, and the table of torch does not say so."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    lazy = torch.ones((2, 3), dtype=torch.complex64, device="cuda").mH
    for tensor, remedy in ((lazy, "resolve_conj"), (lazy.imag, "resolve_neg"), (lazy[0, 0].imag, "resolve_neg")):
        with pytest.raises(ArrayError, match=remedy):
            interop_demo.describe(tensor)
        resolved = getattr(tensor, remedy)()
        assert interop_demo.describe(resolved)["data"] == resolved.data_ptr()
    assert interop_demo.checksum(lazy.imag.resolve_neg() - 1) == -6
