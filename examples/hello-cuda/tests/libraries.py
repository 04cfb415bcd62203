"""The libraries whose arrays the tests use: each one that is installed and finds a GPU."""

import contextlib
import importlib.util


class Torch:
    def __init__(self):
        import torch

        if not torch.cuda.is_available():
            raise ImportError("no GPU")
        self.torch = torch

    def array(self, numbers):
        return self.torch.tensor(numbers, dtype=self.torch.float32, device="cuda")

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

    def numbers(self, array):
        return array.tolist()


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


def found():
    """Returns the libraries that can be used here."""
    libraries = []
    for library in (Torch, CuPy):
        with contextlib.suppress(ImportError):
            libraries.append(library())
    # The tests of `interop` run this project on a simulated driver. If they cannot, that is an error.
    if importlib.util.find_spec("simulated"):
        import simulated

        libraries += simulated.LIBRARIES
    return libraries
