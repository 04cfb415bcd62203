"""The libraries whose arrays the tests use: each one that is installed, with arrays of the CPU, and of a GPU where it finds one."""

import contextlib
import importlib.util

import numpy


class NumPy:
    side_stream = contextlib.nullcontext

    def array(self, numbers):
        return numpy.array(numbers, dtype=numpy.float32)

    def numbers(self, array):
        return array.tolist()


class TorchOnCpu:
    device = "cpu"
    side_stream = contextlib.nullcontext

    def __init__(self):
        import torch

        self.torch = torch

    def array(self, numbers):
        return self.torch.tensor(numbers, dtype=self.torch.float32, device=self.device)

    def numbers(self, array):
        return array.tolist()


class Torch(TorchOnCpu):
    device = "cuda"

    def __init__(self):
        super().__init__()
        if not self.torch.cuda.is_available():
            raise ImportError("no GPU")

    @contextlib.contextmanager
    def side_stream(self):
        stream = self.torch.cuda.Stream()
        stream.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(stream):
            yield

    @contextlib.contextmanager
    def graph(self):
        """Captures a graph. `replay` runs it after the work on the current stream."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            yield graph

    def fill(self, array, value):
        array.fill_(value)


class CuPy:
    def __init__(self):
        import cupy

        try:
            cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ImportError("no GPU") from error
        self.cupy = cupy

    def array(self, numbers):
        return self.cupy.asarray(numbers, dtype=self.cupy.float32)

    @contextlib.contextmanager
    def side_stream(self):
        stream = self.cupy.cuda.Stream(non_blocking=True)
        stream.wait_event(self.cupy.cuda.get_current_stream().record())
        with stream:
            yield

    @contextlib.contextmanager
    def graph(self):
        class Graph:
            def replay(self):
                self.executable.launch(cupy.cuda.get_current_stream())

        cupy, graph = self.cupy, Graph()
        with self.side_stream():
            stream = cupy.cuda.get_current_stream()
            stream.begin_capture()
            try:
                yield graph
            finally:
                graph.executable = stream.end_capture()

    def fill(self, array, value):
        array.fill(value)

    def numbers(self, array):
        return array.tolist()


def on_cpu():
    """Returns the libraries that can be used here, with arrays of the CPU."""
    libraries = [NumPy()]
    with contextlib.suppress(ImportError):
        libraries.append(TorchOnCpu())
    return libraries


def on_gpu():
    """Returns the libraries that can be used here, with arrays of a GPU."""
    libraries = []
    for library in (Torch, CuPy):
        with contextlib.suppress(ImportError):
            libraries.append(library())
    # The tests of `interop` run this project on a simulated driver. If they cannot, that is an error.
    if importlib.util.find_spec("simulated"):
        import simulated

        libraries += simulated.LIBRARIES
    return libraries
