"""Libraries on the simulated driver, and the kernels of `examples/hello-cuda` as that driver runs them."""

import contextlib
import ctypes
import sys

import streamed_library

DRIVER = streamed_library.DRIVER
DRIVER.interop_sim_translate.restype = ctypes.c_void_p
DRIVER.interop_sim_translate.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32]
KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p))


class View(ctypes.Structure):
    """`interop::view<float, 1>`."""

    _fields_ = [("data", ctypes.c_uint64), ("extent", ctypes.c_int64), ("stride", ctypes.c_int64)]

    def element(self, at, write=0):
        place = DRIVER.interop_sim_translate(self.data + 4 * at * self.stride, 4, write)
        # The driver has recorded a mistake if there is no place.
        return ctypes.c_float.from_address(place) if place else ctypes.c_float(0.0)


def kernel(function):
    """Registers the function of one element for the kernel of its name."""

    @KERNEL
    def run(grid, block, shared, parameters):
        source, target = (View.from_address(parameters[at]) for at in range(2))
        for at in range(target.extent):
            function(source.element(at).value, target.element(at, write=1))

    sizes = (ctypes.c_size_t * 2)(*[ctypes.sizeof(View)] * 2)
    DRIVER.interop_sim_register_kernel(function.__name__.encode(), run, sizes, ctypes.c_uint64(2))
    return run


@kernel
def double_elements(source, target):
    target.value = 2 * source


@kernel
def add_elements(source, target):
    target.value += source


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
        assert DRIVER.interop_sim_report_count() == 0, "the driver reports a race"
        return values


class Graph:
    def __init__(self, library, graph):
        self.replay = lambda: graph.replay(library.current())


LIBRARIES = [
    type(f"Simulated{kind.__name__}", (Library,), {})(kind)
    for kind in (streamed_library.Torch, streamed_library.CuPy)
]
