"""Results in CUDA memory as arrays of the caller's library, on the simulated driver."""

import ctypes
import gc
import sys
import threading
import types

import interop_demo
import numpy as np
import pytest
from fake_library import library
from simulation import Simulation

SIM = Simulation()
pytestmark = pytest.mark.skipif(
    SIM.library is None, reason="the simulated driver is not found; `cargo xtask test python` runs this file with it"
)
Array, ArrayError = interop_demo.Array, interop_demo.ArrayError
KINDS = ["cuda", "pool", "pinned", "managed"]
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def nothing_wrong(nothing_leaks):
    """Checks that the driver has nothing to report and that no driver memory leaks."""
    live = SIM.library.simulated_cuda_live(0)
    yield
    gc.collect()
    assert interop_demo.finish_releases() == 0
    assert SIM.reports() == []
    assert SIM.library.simulated_cuda_live(0) == live


def full(kind, shape=(3, 4), value=1.5, dtype="<f4", **options):
    return Array.full(shape, value, dtype, device=kind, **options)


def on_host(array):
    return np.from_dlpack(array, device="cpu")


def read_on(stream, address, count):
    """Returns what a library that uses this stream reads; the driver reports a race."""
    room = (ctypes.c_float * count)()
    size = ctypes.c_size_t(ctypes.sizeof(room))
    SIM.call("cuMemcpyDtoHAsync_v2", room, ctypes.c_uint64(address), size, ctypes.c_uint64(stream))
    SIM.call("cuStreamSynchronize", ctypes.c_uint64(stream))
    return list(room)


@each_kind
@pytest.mark.parametrize("key", [..., (slice(None, None, -1), slice(None, None, 2)), (0, 0), slice(0, 0)], ids=repr)
def test_twice_of_our_arrays(kind, key):
    array = full(kind)[key]
    result = interop_demo.twice(array)
    assert type(result) is Array and result.shape == array.shape
    assert interop_demo.describe(result)["device"] == interop_demo.describe(array)["device"]
    assert interop_demo.checksum(result) == 3 * array.size and interop_demo.checksum(array) == 1.5 * array.size


def test_an_array_in_many_pieces_is_doubled_by_one_kernel():
    base = full("cuda", (2, 4200))
    launches = SIM.calls("cuLaunchKernel")
    result = interop_demo.twice(base[:, ::2])
    assert SIM.calls("cuLaunchKernel") == launches + 1
    assert on_host(result).tolist() == np.full((2, 2100), 3.0).tolist()


def test_twice_comes_after_what_is_pending():
    """The kernel runs on the stream on which the array was last written, and the result is ready there."""
    array, stream = full("cuda"), SIM.stream()
    interop_demo.scale_(array, 3, stream=stream)
    result = interop_demo.twice(array)
    assert interop_demo.describe(result)["stream"] is not None
    assert on_host(result).tolist() == np.full((3, 4), 9.0).tolist()


@pytest.mark.parametrize("dtype", ["<c8", "<c16"])
@pytest.mark.parametrize("kind", ["cuda", "pinned", "managed"])
def test_complex_numbers(kind, dtype):
    array = full(kind, value=1 - 2j, dtype=dtype)
    interop_demo.scale_(array[:, ::-2], 0.5)
    expected = np.full((3, 4), 1 - 2j)
    expected[:, ::-2] /= 2
    assert on_host(array).tolist() == expected.tolist()
    assert on_host(interop_demo.twice(array[::2, 1:])).tolist() == (2 * expected[::2, 1:]).tolist()


def test_what_a_kernel_cannot_double():
    array = full("cuda", value=True, dtype="|b1")
    with pytest.raises(ArrayError, match="found bool"):
        interop_demo.twice(array)


def test_a_library_gets_results_in_memory_of_its_own():
    """The library's allocator creates the memory, and the result is ready on its stream."""
    stream = SIM.stream()
    Kind = library(module="torch", stream=stream)
    source = Kind(full("cuda", (2, 3)))
    del Kind.notes[:]
    result = interop_demo.twice(source)
    assert type(result) is Kind and Kind.notes[1] == ("stream", 2, 0)
    assert ("allocate", (2, 3), (2, 32), (2, 0)) in Kind.notes
    assert read_on(stream, address_of(result), 6) == [3] * 6


def test_the_block_of_a_result_that_is_given_up_is_free_behind_its_own_stream():
    """Nobody else has used it, so its release waits neither for other streams nor for the host."""
    stream, other = SIM.stream(), SIM.stream()
    source = library(allocator=False, stream=stream)(full("cuda", (2, 3)))
    blocks, frees = SIM.calls("cuMemAllocFromPoolAsync"), SIM.calls("cuMemFreeAsync")
    spin = ctypes.c_uint64(SIM.library.simulated_cuda_spin(ctypes.c_uint64(other)))
    with pytest.raises(ArrayError, match="device"):
        interop_demo._ones_like(source)  # The host cannot fill it.
    assert (SIM.calls("cuMemAllocFromPoolAsync") - blocks, SIM.calls("cuMemFreeAsync") - frees) == (1, 1)
    assert SIM.library.simulated_cuda_is_pending(spin)
    SIM.library.simulated_cuda_release_spin(spin)


def address_of(tensor):
    return tensor.array.__cuda_array_interface__["data"][0]


def test_results_are_ordered_before_the_library_s_stream(monkeypatch):
    stream, ours = SIM.stream(), SIM.stream()
    Kind = library(module="torch", stream=stream)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Kind))
    array = full("cuda")
    interop_demo.scale_(array, 2, stream=ours)
    result = interop_demo._as_torch(array)
    assert type(result) is Kind and ("stream", 2, 0) in Kind.notes
    assert read_on(stream, address_of(result), 12) == [3] * 12


@pytest.mark.parametrize(("kind", "device"), [("pinned", (1, 0)), ("managed", (2, 0)), ("cuda", (2, 0))])
def test_pytorch_calls_memory_by_the_names_it_has(monkeypatch, kind, device):
    Kind = library(module="torch")
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Kind))
    result = interop_demo._as_torch(full(kind))
    assert type(result) is Kind and Kind.device == device


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_numpy_waits_for_memory_that_the_host_reaches(kind):
    array, stream = full(kind), SIM.stream()
    interop_demo.scale_(array, 2, stream=stream)
    seen = interop_demo._as_numpy(array)
    assert type(seen) is np.ndarray and seen.tolist() == np.full((3, 4), 3.0).tolist()


def test_numpy_does_not_reach_memory_of_a_device():
    found = r"found CUDA \(2\), ordinal 0, allowed: memory that the host can reach.*PyTorch"
    with pytest.raises(ArrayError, match=found):
        interop_demo._as_numpy(full("cuda"))


def test_cupy_by_name(monkeypatch):
    """Its `from_dlpack` receives an object that exports for the stream that it passes."""
    asked = []

    def from_dlpack(array):
        asked.append(array.__dlpack_device__())
        return interop_demo.asarray(array, stream=1)

    cupy = types.SimpleNamespace(from_dlpack=from_dlpack)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    result = interop_demo._as_cupy(full("cuda"))
    assert asked == [(2, 0)] and interop_demo.checksum(result) == 18


def test_memory_of_cupy(monkeypatch):
    """`cupy.empty` on the argument's device; the object that it creates is the result."""
    notes = []

    class Device:
        def __init__(self, ordinal):
            self.ordinal = ordinal

        def __enter__(self):
            notes.append(("enter", self.ordinal))

        def __exit__(self, *_):
            notes.append(("exit", self.ordinal))

    class ndarray:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **wishes):
            return self.array.__dlpack__(**wishes)

    ndarray.__module__ = "cupy"

    def empty(shape, dtype):
        notes.append((shape, dtype))
        return ndarray(full("cuda", shape, 0, dtype))

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(empty=empty, cuda=types.SimpleNamespace(Device=Device)))
    result = interop_demo.twice(ndarray(full("cuda", (2, 3))))
    assert type(result) is ndarray and on_host(result.array).tolist() == [[3, 3, 3], [3, 3, 3]]
    assert notes == [("enter", 0), ((2, 3), "<f4"), ("exit", 0)]


def test_a_returned_struct_is_dropped_in_the_context_of_its_memory():
    """Python drops it on any thread. A buffer of cust leaks where no context is current."""
    kept = [interop_demo._noted(4)]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert interop_demo._had_context()
