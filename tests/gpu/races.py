"""A late producer, and a consumer that only the protocols make wait: the result is right each time.

The same with the stream waits switched off must go wrong; otherwise the test would prove nothing.

`ROUNDS` is the number of rounds (1000, of 1 ms each). The delays are `spin` kernels on streams that do not
synchronize otherwise.
"""

import ctypes
import gc
import os

import driver
import interop_demo
import pytest
from partners import OnlyCAI, OnlyDLPack

ROUNDS = int(os.environ.get("ROUNDS", "1000"))
DELAY = 1.0
COUNT = 1 << 14
Array = interop_demo.Array


@pytest.fixture(scope="module")
def streams():
    return driver.stream(), driver.stream()


@pytest.fixture
def wrong():
    """A counter in device memory of the elements that were wrong."""
    place = driver.alloc(8)
    driver.write(place, bytearray(8))
    yield place
    driver.synchronize()
    driver.free(place)


def counted(wrong):
    return int.from_bytes(driver.read(wrong, 8), "little")


class Producer:
    """Memory that a late kernel on a stream writes, as an array with one protocol."""

    def __init__(self, stream):
        self.array = Array.full((COUNT,), 0, "<u4", device="cuda")
        self.stream, self.address = stream, interop_demo.describe(self.array)["data"]
        # From here on the array states that it was last written on this stream.
        interop_demo.scale_(self.array, 1.0, stream=stream)

    def write(self, value):
        driver.spin(self.stream, DELAY)
        driver.produce(self.stream, self.address, COUNT, value)


class TorchProducer(Producer):
    """The same with a tensor that torch's stream writes; its type has an exchange table."""

    def __init__(self, stream):
        torch = pytest.importorskip("torch", exc_type=ImportError)
        self.torch = torch
        self.array = torch.zeros(COUNT, dtype=torch.int32, device="cuda").view(torch.uint32)
        self.stream, self.address = stream, self.array.data_ptr()


def asarray(producer, protocol, stream):
    if protocol == "exchange":
        torch = producer.torch
        with torch.cuda.stream(torch.cuda.ExternalStream(producer.stream)):
            return interop_demo.asarray(producer.array, stream=stream)
    wrap = {"dlpack": OnlyDLPack, "cai": OnlyCAI}[protocol]
    return interop_demo.asarray(wrap(producer.array), stream=stream)


def rounds(producer, protocol, consumer, told, wrong, count):
    """Returns the number of rounds in which the consumer read too early."""
    bad = before = 0
    for value in range(1, count + 1):
        producer.write(value * 7)
        array = asarray(producer, protocol, told)
        driver.consume(consumer, producer.address, COUNT, value * 7, wrong)
        # The next round must not write before this one has read.
        driver.synchronize(consumer)
        driver.synchronize(producer.stream)
        after = counted(wrong)
        bad, before = bad + (after != before), after
        del array
    return bad


@pytest.mark.parametrize("protocol", ["exchange", "dlpack", "cai"])
def test_a_late_producer(streams, wrong, protocol):
    first, second = streams
    producer = (TorchProducer if protocol == "exchange" else Producer)(first)
    assert rounds(producer, protocol, second, second, wrong, ROUNDS) == 0


@pytest.mark.parametrize("protocol", ["exchange", "dlpack", "cai"])
def test_without_ordering_it_shows(streams, wrong, protocol):
    """The counterexample: -1 requests no wait."""
    first, second = streams
    producer = (TorchProducer if protocol == "exchange" else Producer)(first)
    assert rounds(producer, protocol, second, -1, wrong, 20) > 0


@pytest.mark.parametrize("unordered", [False, True])
def test_a_producer_that_names_no_stream(streams, wrong, unordered):
    """torch, JAX, Warp and DALI write version 2. By default the consumer then waits for all work of the context."""
    first, second = streams
    producer = Producer(first)

    class Version2:
        __cuda_array_interface__ = {**producer.array.__cuda_array_interface__, "version": 2}

    Version2.__cuda_array_interface__.pop("stream")
    interop_demo.set_unordered(unknown_work=unordered)
    try:
        bad = 0
        for value in range(1, 21):
            producer.write(value)
            array = interop_demo.asarray(Version2(), stream=second)
            driver.consume(second, producer.address, COUNT, value, wrong)
            driver.synchronize(second)
            bad = counted(wrong)
            driver.synchronize()
            del array
    finally:
        interop_demo.set_unordered()
    assert (bad == 0) == (not unordered)


def overtaken(kind, streams, wrong, count):
    """Returns how many elements a slow consumer read after their memory had been reused."""
    first, second = streams
    for value in range(1, count + 1):
        array = Array.full((COUNT,), 0, "<u4", device=kind)
        address = interop_demo.describe(array)["data"]
        driver.produce(first, address, COUNT, value)
        driver.synchronize(first)
        imported = interop_demo.asarray(array, stream=second)
        driver.spin(second, DELAY)
        driver.consume(second, address, COUNT, value, wrong)
        del array, imported
        gc.collect()
        # The next owner of the same memory, if it was released.
        reused = Array.full((COUNT,), 1, "<u4", device=kind)
        driver.produce(first, interop_demo.describe(reused)["data"], COUNT, 0)
        driver.synchronize()
        del reused
    return counted(wrong)


@pytest.mark.parametrize("kind", ["cuda", "pool", "pinned", "managed"])
def test_a_slow_consumer(streams, wrong, kind):
    assert overtaken(kind, streams, wrong, min(ROUNDS, 300)) == 0


def overtaken_by_torch(unordered, streams, wrong, count):
    """Returns how many elements a slow consumer read after torch's allocator had given their block to another tensor.
    """
    torch = pytest.importorskip("torch", exc_type=ImportError)
    first, second = streams
    interop_demo.set_unordered(releases=unordered)
    for value in range(1, count + 1):
        tensor = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
        address = tensor.data_ptr()
        torch.cuda.synchronize()
        driver.produce(first, address, COUNT, value)
        driver.synchronize(first)
        imported = interop_demo.asarray(tensor, stream=second)
        driver.spin(second, DELAY)
        driver.consume(second, address, COUNT, value, wrong)
        del tensor, imported
        reused = torch.zeros(COUNT, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        del reused
    interop_demo.set_unordered()
    return counted(wrong)


def test_a_slow_consumer_of_torch(streams, wrong):
    """torch's allocator reuses a block as soon as its tensor is dropped. Our import keeps the tensor until the work
    is done.
    """
    assert overtaken_by_torch(False, streams, wrong, min(ROUNDS, 300)) == 0


def test_without_ordered_releases_it_shows(streams, wrong):
    """The counterexample: the block is released immediately."""
    assert overtaken_by_torch(True, streams, wrong, 20) > 0


def test_torch_reads_slowly_what_we_drop(streams, wrong):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    stream = torch.cuda.Stream()
    for value in range(1, min(ROUNDS, 200) + 1):
        array = Array.full((COUNT,), value, "<i4", device="pool")
        with torch.cuda.stream(stream):
            tensor = torch.from_dlpack(array)
            driver.spin(stream.cuda_stream, DELAY)
            total = tensor.sum()
        del array, tensor
        gc.collect()
        reused = Array.full((COUNT,), 0, "<i4", device="pool")
        assert total.item() == value * COUNT
        del reused


def test_a_host_reader_waits(streams):
    """NumPy passes no stream when it imports pinned memory."""
    import numpy as np

    first, _ = streams
    for kind in ("pinned", "managed"):
        for value in range(2, 52):
            array = Array.full((COUNT,), 1, "<u4", device=kind)
            driver.spin(first, DELAY)
            interop_demo.scale_(array, float(value), stream=first)
            assert (np.from_dlpack(array) == value).all()
            assert ctypes.c_uint32.from_address(interop_demo.describe(array)["data"]).value == value
