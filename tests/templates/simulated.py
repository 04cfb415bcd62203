"""Libraries on the simulated driver, and the kernels of `examples/hello-cuda` as that driver runs them."""

import contextlib
import ctypes
import os
import sys

import streamed_library

DRIVER = streamed_library.DRIVER

# The kernels are the functions of the template itself (`lib.rs` here).
ctypes.CDLL(os.environ["TEMPLATE_KERNELS"]).register_kernels()


class Library:
    """A library of `streamed_library`, as the tests of the template use it."""

    def __init__(self, kind):
        self.library = kind()
        sys.modules.update(getattr(self.library, "modules", dict)())
        self.array = self.library.array

    @contextlib.contextmanager
    def side_stream(self):
        with self.library.using(self.library.new_stream()):
            yield

    @contextlib.contextmanager
    def graph(self):
        with self.library.capture() as graph:
            yield Graph(self.library, graph)

    def fill(self, array, value):
        array.fill_(value)

    def numbers(self, array):
        """Fails if anything raced."""
        values = array.tolist()
        assert DRIVER.simulated_cuda_report_count() == 0, "the driver reports a race"
        return values


class Graph:
    def __init__(self, library, graph):
        self.replay = lambda: graph.replay(library.current())


LIBRARIES = [
    type(f"Simulated{kind.__name__}", (Library,), {})(kind)
    for kind in (streamed_library.Torch, streamed_library.CuPy)
]
