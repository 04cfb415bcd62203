"""Interface dicts of memory that host and kernels reach by different addresses, on the simulated driver."""

import ctypes

import interop_demo
import numpy as np
import pytest
from test_cuda_sim import SIM, nothing_wrong, on_host, pytestmark  # noqa: F401


@pytest.fixture
def registered():
    """Host memory that is registered, and its address for devices, which is another one."""
    memory = np.arange(4, dtype="<f4")
    first, on_devices = ctypes.c_uint64(memory.ctypes.data), ctypes.c_uint64()
    SIM.library.interop_sim_set_registered_apart(1)
    SIM.call("cuMemHostRegister_v2", first, ctypes.c_size_t(memory.nbytes), 0)
    SIM.library.interop_sim_set_registered_apart(0)
    SIM.call("cuMemHostGetDevicePointer_v2", ctypes.byref(on_devices), first, 0)
    assert on_devices.value != first.value
    yield memory, on_devices.value
    SIM.call("cuMemHostUnregister", first)


class ByInterface:
    """So many `float32` at an address."""

    def __init__(self, address, count):
        interface = {"shape": (count,), "typestr": "<f4", "data": (address, False), "strides": None, "version": 3}
        self.__cuda_array_interface__ = interface


def test_a_dict_has_the_address_that_kernels_use(registered):
    """R35: whichever of its two addresses pinned memory came by."""
    memory, on_devices = registered
    for address in (memory.ctypes.data, on_devices):
        array = interop_demo.asarray(ByInterface(address, 4))
        assert interop_demo.describe(array)["data"] == memory.ctypes.data
        assert array.__cuda_array_interface__["data"] == (on_devices, False)
        assert array[::-1].__cuda_array_interface__["data"] == (on_devices + 12, False)
        assert np.shares_memory(on_host(array), memory)


def test_memory_that_no_kernel_reaches_has_no_dict(registered):
    array = interop_demo.asarray(ByInterface(registered[1], 4))
    SIM.library.interop_sim_fail_next(b"cuPointerGetAttribute", 1)
    assert not hasattr(array, "__cuda_array_interface__")
    SIM.library.interop_sim_fail_next(b"cuPointerGetAttribute", 1)
    with pytest.raises(AttributeError, match="__cuda_array_interface__: `data`: .* has no access"):
        array.__cuda_array_interface__  # noqa: B018
    assert hasattr(array, "__cuda_array_interface__")
