"""Functions that are called in the middle of another library's work, on its current stream, with nothing in between.

Each round queues a delay, a write, the function, and a check of every element, on the stream on which the library works.
The rounds follow each other without a wait, so the device is busy all the time. Whatever is not ordered shows.

`ROUNDS` is the number of rounds (1000). `example` functions are those of `examples/hello-cuda`, which people copy.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import struct
import subprocess
import sys
import threading

import driver
import hello_cuda
import interop_demo
import libraries
import numpy as np
import pytest

ROUNDS = int(os.environ.get("ROUNDS", "1000"))
DELAY = 0.2
COUNT = 1 << 14
ONE = struct.unpack("<I", struct.pack("<f", 1.0))[0]
# What doubling adds to the bits of a float.
TWICE = 1 << 23
Array = interop_demo.Array


class Torch(libraries.Torch):
    def __init__(self):
        super().__init__()
        self.empty = lambda: self.torch.empty(COUNT, dtype=self.torch.float32, device="cuda")
        self.from_dlpack = self.torch.from_dlpack

    def handle(self, array):
        return self.torch.cuda.current_stream().cuda_stream

    def address(self, array):
        return array.data_ptr()


class CuPy(libraries.CuPy):
    def from_dlpack(self, array):
        return self.cupy.from_dlpack(array)

    def empty(self):
        return self.cupy.empty(COUNT, self.cupy.float32)

    def handle(self, array):
        return self.cupy.cuda.get_current_stream().ptr

    def address(self, array):
        return array.data.ptr


class Numba:
    """An array belongs to a stream, which its dict names."""

    module = "numba.cuda"

    def __init__(self):
        self.cuda = importlib.import_module(self.module)
        self.stream = 0

    def empty(self):
        return self.cuda.device_array(COUNT, np.float32, stream=self.stream)

    def handle(self, array):
        return int(self.stream.handle) if self.stream else 0

    def address(self, array):
        return array.__cuda_array_interface__["data"][0]

    @contextlib.contextmanager
    def side_stream(self):
        self.stream = self.cuda.stream()
        try:
            yield
        finally:
            self.stream = 0


class NumbaCudaMlir(Numba):
    module = "numba_cuda_mlir.cuda"


class Warp:
    def __init__(self):
        self.warp = importlib.import_module("warp")
        self.warp.config.quiet = True
        self.warp.init()

    def empty(self):
        return self.warp.empty(COUNT, dtype=self.warp.float32, device="cuda:0")

    def handle(self, array):
        return self.warp.get_stream("cuda:0").cuda_stream or 0

    def address(self, array):
        return array.ptr

    @contextlib.contextmanager
    def side_stream(self):
        with self.warp.ScopedStream(self.warp.Stream("cuda:0")):
            yield


class WarpOnTorch(Warp):
    """Warp on a non-blocking stream of PyTorch."""

    def __init__(self):
        super().__init__()
        self.torch = importlib.import_module("torch")

    @contextlib.contextmanager
    def side_stream(self):
        with self.warp.ScopedStream(self.warp.stream_from_torch(self.torch.cuda.Stream())):
            yield


class TvmFfi(Torch):
    """PyTorch's memory as tensors of TVM FFI, for which nobody has set a stream."""

    def __init__(self):
        super().__init__()
        self.tvm_ffi = importlib.import_module("tvm_ffi")
        self.empty = lambda: self.tvm_ffi.from_dlpack(self.torch.empty(COUNT, device="cuda"))

    def address(self, array):
        return self.torch.from_dlpack(array).data_ptr()


class TvmFfiInCall(TvmFfi):
    """The same, as within a call of a TVM FFI function: the stream is set."""

    @contextlib.contextmanager
    def side_stream(self):
        with super().side_stream(), self.tvm_ffi.use_torch_stream():
            yield


KINDS = [Torch, CuPy, Numba, Warp, NumbaCudaMlir, WarpOnTorch, TvmFfi, TvmFfiInCall]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def library(request):
    try:
        return request.param()
    except ImportError as error:
        pytest.skip(f"{request.param.__name__} is not here: {error}")


@pytest.fixture(params=["default stream", "side stream"])
def stream(request, library):
    with library.side_stream() if request.param == "side stream" else contextlib.nullcontext():
        yield


class Counter:
    """A number in device memory, of the elements that were wrong."""

    def __init__(self):
        self.place = driver.alloc(8)
        driver.write(self.place, bytearray(8))

    def __int__(self):
        return int.from_bytes(driver.read(self.place, 8), "little")


@pytest.fixture
def wrong():
    counter = Counter()
    yield counter
    driver.synchronize()
    driver.free(counter.place)


@pytest.fixture(autouse=True)
def warm():
    """Loads the kernels."""
    array = Array.full((4,), 1.0, device="cuda")
    interop_demo.scale_(array, 1.0)
    interop_demo.checksum(array)
    with contextlib.suppress(ImportError):
        cupy = importlib.import_module("cupy")
        hello_cuda.add_(cupy.ones(4, cupy.float32), hello_cuda.double(cupy.ones(4, cupy.float32)))
    driver.synchronize()


def add_to_itself(array, library):
    """A function of two arrays."""
    other = library.empty()
    driver.call("cuMemcpyAsync", *map(ctypes.c_uint64, (library.address(other), library.address(array), 4 * COUNT, library.handle(array))))
    hello_cuda.add_(array, other)


IN_PLACE = {
    "scale_": lambda array, library: interop_demo.scale_(array, 2.0),
    "example double_": lambda array, library: hello_cuda.double_(array),
    "example add_": add_to_itself,
}
RESULTS = {"twice": interop_demo.twice, "example double": hello_cuda.double}


def write(library, array, value):
    """Writes after a delay, on the stream of the library."""
    stream = library.handle(array)
    driver.spin(stream, DELAY)
    driver.produce(stream, library.address(array), COUNT, value)


def check(library, array, value, wrong, address=None):
    driver.consume(library.handle(array), address or library.address(array), COUNT, value, wrong.place)


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place(library, stream, function, wrong):
    array = library.empty()
    for value in range(ROUNDS):
        write(library, array, ONE + value)
        IN_PLACE[function](array, library)
        check(library, array, ONE + value + TWICE, wrong)
    assert int(wrong) == 0


@pytest.mark.parametrize("function", RESULTS)
def test_a_result(library, stream, function, wrong):
    """The argument is written again and the result's memory is used again, at once."""
    array = library.empty()
    for value in range(ROUNDS):
        write(library, array, ONE + value)
        result = RESULTS[function](array)
        driver.produce(library.handle(array), library.address(array), COUNT, 7)
        is_theirs = type(result) is type(array)
        address = library.address(result) if is_theirs else interop_demo.describe(result)["data"]
        if not is_theirs:
            # An array of ours: whoever uses it is made to wait.
            driver.synchronize()
        check(library, array, ONE + value + TWICE, wrong, address)
        del result
        again = library.empty()
        driver.produce(library.handle(array), library.address(again), COUNT, 9)
        del again
    assert int(wrong) == 0


def test_a_sum(library, stream):
    array, total = library.empty(), None
    for value in range(ROUNDS // 10):
        write(library, array, ONE + value)
        total = interop_demo.checksum(array)
        driver.produce(library.handle(array), library.address(array), COUNT, 7)
        expected = np.arange(ONE + value, ONE + value + COUNT, dtype=np.uint32).view(np.float32).astype(np.float64).sum()
        assert total == expected


def test_the_rounds_see_what_is_not_ordered(wrong):
    """The counterexample: the stream is named, and it is not that of the library."""
    library, other = Torch(), driver.stream()
    with library.side_stream():
        array = library.empty()
        for value in range(20):
            write(library, array, ONE + value)
            interop_demo.scale_(array, 2.0, stream=other)
            check(library, array, ONE + value + TWICE, wrong)
        assert int(wrong) > 0
    interop_demo.finish_releases()


@pytest.mark.parametrize("first", KINDS[:4], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("second", KINDS[:4], ids=lambda kind: kind.__name__)
def test_arrays_of_two_libraries(first, second, wrong):
    """Each works on a stream of its own, and both write right after the call."""
    try:
        first, second = first(), second()
    except ImportError as error:
        pytest.skip(f"not here: {error}")
    with first.side_stream(), second.side_stream():
        array, other = first.empty(), second.empty()
        for value in range(ROUNDS // 4):
            write(first, array, ONE + value)
            write(second, other, ONE + value)
            hello_cuda.add_(array, other)
            driver.produce(second.handle(other), second.address(other), COUNT, 7)
            check(first, array, ONE + value + TWICE, wrong)
        assert int(wrong) == 0


def test_two_threads_with_a_stream_each(library):
    if isinstance(library, (Numba, Warp, TvmFfi)):
        pytest.skip("its stream is not one of the thread")
    counters, errors = [Counter(), Counter()], []

    def work(wrong):
        try:
            driver.enter(0)
            with library.side_stream():
                array = library.empty()
                for value in range(ROUNDS // 4):
                    write(library, array, ONE + value)
                    hello_cuda.double_(array)
                    check(library, array, ONE + value + TWICE, wrong)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(wrong,)) for wrong in counters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and [int(wrong) for wrong in counters] == [0, 0]


# Memory.


def test_a_loop_holds_no_more_memory_than_pytorch(wrong):
    """A loop over new tensors of 64 MiB, on a busy device."""
    library = Torch()
    torch = library.torch

    def peak(function):
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with library.side_stream():
            for _ in range(1000):
                tensor = torch.ones(1 << 24, device="cuda")
                function(tensor)
                del tensor
        torch.cuda.synchronize()
        return torch.cuda.max_memory_reserved()

    pure = peak(lambda tensor: tensor.mul_(2.0))
    assert peak(lambda tensor: interop_demo.scale_(tensor, 2.0)) == pure
    assert peak(hello_cuda.double_) == pure
    pure = peak(lambda tensor: tensor * 2.0)
    assert peak(hello_cuda.double) == pure
    assert interop_demo.pending_releases() == 0


@pytest.mark.parametrize("function", ["theirs", "ours"])
def test_memory_of_another_stream_with_record_stream(function, wrong):
    """Allocated on A and used under B: PyTorch's own operators need `record_stream`, and so does a function."""
    library = Torch()
    torch, work = library.torch, {"theirs": lambda tensor: tensor.mul_(2.0), "ours": hello_cuda.double_}[function]
    with library.side_stream():
        second = torch.cuda.current_stream()
    for value in range(ROUNDS // 4):
        tensor = library.empty()
        write(library, tensor, ONE + value)
        second.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(second):
            driver.spin(library.handle(tensor), DELAY)
            work(tensor)
            check(library, tensor, ONE + value + TWICE, wrong)
        tensor.record_stream(second)
        del tensor
        again = library.empty()
        driver.produce(library.handle(again), library.address(again), COUNT, 9)
        del again
    assert int(wrong) == 0


def test_pinned_memory_that_the_host_writes_at_once():
    torch = Torch().torch
    pinned = torch.empty(COUNT, pin_memory=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        for value in range(ROUNDS // 4):
            pinned.fill_(value)
            interop_demo.scale_(pinned, 2.0)
            assert pinned[value % COUNT] == 2 * value
            assert interop_demo.checksum(pinned) == 2.0 * value * COUNT


# Graphs.


@pytest.fixture(params=[Torch, CuPy], ids=lambda kind: kind.__name__)
def capturing(request):
    try:
        return request.param()
    except ImportError as error:
        pytest.skip(f"not here: {error}")


def test_ten_functions_in_a_graph(capturing, wrong):
    library = capturing
    arrays = [library.empty() for _ in range(3)]
    first, second, third = arrays
    with library.side_stream():
        hello_cuda.double(first)  # once before the capture, as PyTorch advises
    driver.synchronize()
    with library.graph() as graph:
        for _ in range(3):
            hello_cuda.double_(first)
            interop_demo.scale_(first, 2.0)
            gc.collect()
        result = hello_cuda.double(first)
        hello_cuda.add_(second, result)
        del result
        again = interop_demo.twice(second)
        hello_cuda.double_(again)
    assert type(again) is type(first)
    for value in range(100):
        stream = library.handle(first)
        driver.spin(stream, DELAY)
        driver.produce(stream, library.address(first), COUNT, ONE + value)
        driver.call("cuMemsetD32Async", ctypes.c_uint64(library.address(second)), 0, ctypes.c_uint64(COUNT), ctypes.c_uint64(stream))
        graph.replay()
        check(library, first, ONE + value + 6 * TWICE, wrong)
        check(library, second, ONE + value + 7 * TWICE, wrong)
        check(library, again, ONE + value + 9 * TWICE, wrong)
    assert int(wrong) == 0


def test_a_graph_beside_a_thread_that_exports(capturing, wrong):
    """The other thread's arrays are released by events that would spoil the capture, so releases are held."""
    library, stop, errors = capturing, threading.Event(), []
    array = library.empty()
    hello_cuda.double_(array)

    def export():
        try:
            driver.enter(0)
            with library.side_stream():
                own, ours = library.empty(), Array.full((8,), 1.0, device="cuda")
                while not stop.is_set():
                    theirs = library.from_dlpack(ours)
                    hello_cuda.double_(own)
                    del theirs
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=export)
    thread.start()
    try:
        for value in range(20):
            with interop_demo.HoldReleases(), thread_local(library) as graph:
                hello_cuda.double_(array)
            write(library, array, ONE + value)
            graph.replay()
            check(library, array, ONE + value + TWICE, wrong)
            del graph  # in the next capture PyTorch could not free it
    finally:
        stop.set()
        thread.join()
    assert errors == [] and int(wrong) == 0


@contextlib.contextmanager
def thread_local(library):
    """Captures in the mode in which other threads may allocate memory."""
    if isinstance(library, CuPy):
        with library.graph() as graph:
            yield graph
        return
    graph = library.torch.cuda.CUDAGraph()
    with library.torch.cuda.graph(graph, capture_error_mode="thread_local"):
        yield graph


def test_a_capture_of_warp(wrong):
    try:
        library = Warp()
    except ImportError as error:
        pytest.skip(f"not here: {error}")
    array = library.empty()
    hello_cuda.double_(array)
    parked = interop_demo.asarray(library.empty(), stream=1)
    del parked  # its release is pending
    with library.warp.ScopedCapture(device="cuda:0") as capture:
        hello_cuda.double_(array)
        interop_demo.scale_(array, 2.0)
        gc.collect()
    for value in range(100):
        write(library, array, ONE + value)
        library.warp.capture_launch(capture.graph)
        check(library, array, ONE + value + 2 * TWICE, wrong)
    assert int(wrong) == 0


# Processes of their own.


def run(code, **environment):
    """Runs code in a process of its own."""
    folder = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=folder, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


PREAMBLE = """
import caller_streams as t, driver, gc, hello_cuda, interop_demo
wrong = t.Counter()
def rounds(library, count=200):
    array = library.empty()
    for value in range(count):
        t.write(library, array, t.ONE + value)
        hello_cuda.double_(array)
        interop_demo.scale_(array, 2.0)
        t.check(library, array, t.ONE + value + 2 * t.TWICE, wrong)
    assert int(wrong) == 0, int(wrong)
"""


def test_pytorch_without_its_table():
    """As PyTorch before 2.10."""
    pytest.importorskip("torch", exc_type=ImportError)
    run(
        PREAMBLE
        + """
import torch
class Old(t.Torch):
    def __init__(self):
        super().__init__()
for name in ("__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"):
    if hasattr(torch.Tensor, name):
        delattr(torch.Tensor, name)
assert not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
library = Old()
rounds(library)
with library.side_stream():
    rounds(library)
array = library.empty()
with library.graph() as graph:
    hello_cuda.double_(array)
    other = hello_cuda.double(array)
t.write(library, array, t.ONE)
graph.replay()
t.check(library, other, t.ONE + 2 * t.TWICE, wrong)
assert int(wrong) == 0
"""
    )


def test_cupy_with_per_thread_default_streams():
    pytest.importorskip("cupy", exc_type=ImportError)
    code = """
import threading
library = t.CuPy()
def work():
    driver.enter(0)
    assert library.handle(None) == 2
    rounds(library)
work()
threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    run(PREAMBLE + code, CUPY_CUDA_PER_THREAD_DEFAULT_STREAM="1")


def test_a_stream_of_cupy_that_is_gone_after_the_call():
    pytest.importorskip("cupy", exc_type=ImportError)
    run(
        PREAMBLE
        + """
library = t.CuPy()
cupy = library.cupy
array = library.empty()
kept = []
for value in range(200):
    with cupy.cuda.Stream(non_blocking=True) as stream:
        t.write(library, array, t.ONE + value)
        hello_cuda.double_(array)
        result = hello_cuda.double(array)
        kept.append(interop_demo.asarray(array))
        t.check(library, result, t.ONE + value + 2 * t.TWICE, wrong)
        stream.synchronize()
    cupy.cuda.Stream.null.use()
    del stream
    gc.collect()
    del result
    if value % 2:
        kept.clear()
    interop_demo.poll_releases()
    cupy.from_dlpack(interop_demo.asarray(array)).sum()
assert int(wrong) == 0
"""
    )


@pytest.mark.parametrize("setting", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_allocators_of_pytorch(setting):
    pytest.importorskip("torch", exc_type=ImportError)
    code = """
library = t.Torch()
with library.side_stream():
    rounds(library)
    for value in range(100):
        array = library.empty()
        t.write(library, array, t.ONE + value)
        result = hello_cuda.double(array)
        del array
        t.check(library, result, t.ONE + value + t.TWICE, wrong)
assert int(wrong) == 0
"""
    run(PREAMBLE + code, PYTORCH_CUDA_ALLOC_CONF=setting, PYTORCH_ALLOC_CONF=setting)


def test_an_array_of_the_other_device():
    """While the first device is current."""
    if driver.devices() < 2:
        pytest.skip("needs a second GPU")
    library = Torch()
    torch = library.torch
    with torch.cuda.device(1), torch.cuda.stream(torch.cuda.Stream(1)) as _:
        tensors = [torch.zeros(COUNT, device="cuda:1") for _ in range(2)]
        torch.cuda.synchronize()
    side = torch.cuda.Stream(1)
    for value in range(200):
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000)
            tensors[0].fill_(value)
        with torch.cuda.stream(side), torch.cuda.device(0):
            # The current stream of device 1 is the side stream, and device 0 is current.
            assert torch.cuda.current_stream(1) == side
            hello_cuda.double_(tensors[0])
            result = hello_cuda.double(tensors[0])
        with torch.cuda.stream(side):
            tensors[1].copy_(result)
            assert tensors[1].sum().item() == 4.0 * value * COUNT
            assert tensors[0].sum().item() == 2.0 * value * COUNT
