"""The same memory under another device type, for libraries that do not support its own, on the simulated driver."""

import ctypes
import gc

import interop_demo
import numpy as np
import pytest
from capsules import CPU, CUDA
from test_cuda_arrays import SIM, full, nothing_wrong, on_host, pytestmark  # noqa: F401

describe = interop_demo.describe


def as_(place, array):
    return getattr(array, f"relabel_as_{place}")()


@pytest.mark.parametrize(
    ("kind", "place", "device"),
    [("managed", "device", (CUDA, 0)), ("managed", "host", (CPU, 0)), ("pinned", "host", (CPU, 0))],
)
@pytest.mark.parametrize("readonly", [False, True])
def test_memory_goes_by_another_name(kind, place, device, readonly):
    array = full(kind, readonly=readonly)
    facts = describe(array)
    other = as_(place, array)
    assert (other.__dlpack_device__(), describe(other)["device"]) == (device, device)
    same = ("data", "shape", "strides", "dtype", "readonly")
    assert [describe(other)[key] for key in same] == [facts[key] for key in same]
    assert hasattr(other, "__cuda_array_interface__") == (device[0] == CUDA)
    assert array.__dlpack_device__() != device


@pytest.mark.parametrize(("kind", "place"), [("cuda", "device"), ("pool", "device"), ("cpu", "host")])
def test_memory_that_has_the_name_keeps_it(kind, place):
    """The call changes nothing then, so a program need not check first."""
    array = full(kind)
    other = as_(place, array)
    assert (describe(other), other.__dlpack_device__()) == (describe(array), array.__dlpack_device__())


@pytest.mark.parametrize(("kind", "place"), [("cpu", "device"), ("pinned", "device"), ("cuda", "host"), ("pool", "host")])
def test_memory_that_is_elsewhere_is_refused(kind, place):
    with pytest.raises(interop_demo.ArrayError, match="^`device`: found .*, allowed: .*CUDA"):
        as_(place, full(kind))


@pytest.mark.parametrize("place", ["device", "host"])
def test_it_keeps_the_memory(place):
    other = as_(place, full("managed"))
    gc.collect()
    interop_demo.scale_(other, 2)
    assert on_host(other).tolist() == [[5.0] * 4] * 3


def test_numpy_takes_it_in_place():
    array = full("pinned")
    taken = np.asarray(array.relabel_as_host())
    interop_demo.scale_(array, 2)
    assert interop_demo.checksum(array) == taken.sum() == 60


def test_work_is_pending_under_the_other_name_too():
    array, ours, theirs = full("managed"), SIM.stream(), SIM.stream()
    spin = SIM.library.simulated_cuda_spin(ctypes.c_uint64(ours))
    interop_demo.scale_(array, 2, stream=ours)
    array.relabel_as_device().__dlpack__(stream=theirs, max_version=(1, 0))
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(theirs))
    assert not SIM.library.simulated_cuda_is_pending(ctypes.c_uint64(spin))
