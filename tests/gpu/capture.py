"""Imports and exports during graph capture: the capture stays valid, and calls that would invalidate it are refused
first.
"""

import ctypes
import gc
import threading

import driver
import interop_demo
import pytest
from capsules import Tensor

torch = pytest.importorskip("torch", exc_type=ImportError)
Array = interop_demo.Array


@pytest.fixture(autouse=True)
def warm():
    """The first kernel of a context loads a module, which a capture does not allow."""
    interop_demo.scale_(Array.full((4,), 1.0, device="cuda"), 1.0)
    interop_demo.finish_releases()
    driver.synchronize()


def captured(work, mode="global"):
    """Returns the graph of the work that `work(stream handle)` queues."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
        work(stream.cuda_stream)
    return graph


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_torch_comes_in(mode):
    tensor = torch.ones(1000, device="cuda")
    graph = captured(lambda stream: interop_demo.scale_(tensor, 2.0, stream=stream), mode)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert tensor.sum().item() == 8000


@pytest.mark.parametrize("stream_of", [lambda stream: stream, lambda stream: -1], ids=["same", "none"])
def test_an_import_is_dropped_in_a_capture(stream_of):
    tensor, counted = torch.ones(1000, device="cuda"), torch.zeros(1, device="cuda")

    def work(stream):
        imported = interop_demo.asarray(tensor, stream=stream_of(stream))
        counted.add_(tensor[0])
        del imported
        gc.collect()

    graph = captured(work)
    graph.replay()
    torch.cuda.synchronize()
    assert counted.item() == 1


def test_ours_goes_to_torch():
    array = Array.full((1000,), 1.0, device="cuda")
    held = []

    def work(stream):
        held.append(torch.from_dlpack(array))
        held[0].mul_(3.0)

    captured(work).replay()
    torch.cuda.synchronize()
    assert interop_demo.checksum(array) == 3000


def test_an_edge_out_of_the_capture_is_refused():
    """A stream outside cannot wait for a capture: we return an error before the driver invalidates the capture."""
    tensor, other = torch.ones(1000, device="cuda"), driver.stream()
    refused = []

    def work(stream):
        try:
            interop_demo.asarray(tensor, stream=other)
        except interop_demo.ArrayError as error:
            refused.append(str(error))
        tensor.mul_(2.0)

    graph = captured(work, "thread_local")
    graph.replay()
    torch.cuda.synchronize()
    assert tensor.sum().item() == 2000
    assert refused and "captur" in refused[0]


def test_releases_are_held():
    tensor = torch.ones(1000, device="cuda")
    imported = [interop_demo.asarray(tensor)]

    def work(stream):
        with interop_demo.HoldReleases():
            imported.clear()
            gc.collect()
            assert interop_demo.pending_releases() > 0
        tensor.mul_(2.0)

    captured(work).replay()
    torch.cuda.synchronize()
    assert interop_demo.finish_releases() == 0
    assert tensor.sum().item() == 2000


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_small_arrays_that_another_thread_drops_leave_the_capture_alone(mode):
    """No hold is needed: a small array makes no driver call when it is dropped."""
    tensor = torch.ones(1000, device="cuda")
    # In both directions: arrays of ours that torch holds, and tensors of torch that we hold.
    exported = [torch.from_dlpack(Array.full((1 << 16,), 1.0, device="cuda")) for _ in range(4)]
    imported = [interop_demo.asarray(torch.ones(1 << 16, device="cuda")) for _ in range(4)]
    interop_demo.finish_releases()
    torch.cuda.synchronize()

    def drop():
        exported.clear()
        imported.clear()

    def work(stream):
        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
        assert interop_demo.pending_releases() == 8
        tensor.mul_(2.0)

    captured(work, mode).replay()
    torch.cuda.synchronize()
    assert interop_demo.finish_releases() == 0
    assert tensor.sum().item() == 2000


class Producer:
    """A capsule of a square `float32` matrix at an address."""

    def __init__(self, address, rows):
        self.tensor = Tensor(shape=(rows, rows), strides=(rows, 1), data=address, device=(2, 0))

    def __dlpack__(self, **wishes):
        return self.tensor.capsule()

    def __dlpack_device__(self):
        return (2, 0)


def test_memory_that_the_graph_allocates_is_taken_on_trust():
    """The driver knows this memory only after the graph has run."""
    told = []

    def work(stream):
        stream = ctypes.c_uint64(stream)
        address = driver.answer("cuMemAllocAsync", ctypes.c_size_t(64), stream)
        with pytest.raises(interop_demo.ArrayError, match="which the driver does not know"):
            interop_demo.describe(Producer(address, 4))
        trusted = Producer(address, 4)
        told.append((interop_demo.is_square_trusted(trusted), trusted))
        driver.call("cuMemsetD32Async", ctypes.c_uint64(address), 7, ctypes.c_size_t(16), stream)
        driver.call("cuMemFreeAsync", ctypes.c_uint64(address), stream)

    captured(work).replay()
    torch.cuda.synchronize()
    assert interop_demo.finish_releases() == 0
    [(is_square, producer)] = told
    assert (is_square, producer.tensor.released) == (True, 1)
